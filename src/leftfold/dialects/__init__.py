"""The five specifications behind Leftfold, each as a view on the one lifecycle.

A dialect is data: the seed's own table, word for word; its names for our states and events; and the moves of
ours that its table lacks, each with the reason and with whose wish it is. `dialect.py` gives the data meaning.
"""

from collections.abc import Mapping
from typing import Final

from leftfold.dialects import authoritative, contract, formal, quality, reliability
from leftfold.dialects.dialect import Dialect

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        formal.DIALECT,
        authoritative.DIALECT,
        reliability.DIALECT,
        contract.DIALECT,
        quality.DIALECT,
    )
}
