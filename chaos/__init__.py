"""Chaos as a campaign: workers, clients and a nemesis on a real store, and a checker that believes none of them."""
