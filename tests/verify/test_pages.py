"""How much is read at a time: a store of long logs is not read into memory at once."""

from leftfold.store.audit import Kept, Pages


def page(jobs: int, length: int) -> list[Kept]:
    return [
        Kept("id", None, None, [(1, 0, 1, "noted", None, "ann", None, None, "x" * length, b"")]) for _ in range(jobs)
    ]


def test_pages_of_short_logs_grow_up_to_a_bound() -> None:
    pages = Pages()
    sizes = []
    for _ in range(6):
        pages.learn(page(pages.size, 100))
        sizes.append(pages.size)
    assert sizes == [128, 256, 512, 512, 512, 512]


def test_pages_of_long_logs_shrink_to_single_jobs() -> None:
    pages = Pages()
    sizes = []
    for _ in range(4):
        pages.learn(page(pages.size, 9 * 1024 * 1024 // pages.size))
        sizes.append(pages.size)
    assert sizes == [16, 4, 1, 1]


def test_a_page_that_is_neither_stays_as_it_is() -> None:
    pages = Pages()
    pages.learn(page(pages.size, 2 * 1024 * 1024 // pages.size))
    assert pages.size == 64
