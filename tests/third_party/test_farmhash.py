"""The stand-in for pyfarmhash gives the original's fingerprints, for every class of length it treats apart."""

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "third_party" / "pyfarmhash" / "farmhash.py"
TEXT = (
    "The quick brown fox jumps over the lazy dog, and then it runs through the whole of the wood "
    "until the night falls on them both."
)

# Length of the prefix of TEXT, then what pyfarmhash 0.3.2 (Google's C++) gives.
FINGERPRINTS = [
    (0, 3696677242, 11160318154034397263),
    (1, 3998567331, 1366698271136253306),
    (3, 132453154, 9622071900453499901),
    (4, 245748330, 17648915545525335717),
    (7, 3218495686, 18103137151329643399),
    (8, 412845616, 5102859526078303239),
    (12, 3010238136, 16046829537012271495),
    (13, 489073990, 9748184355138100833),
    (16, 4020496759, 4320848957565769301),
    (17, 2268804363, 14385391840113208765),
    (24, 3395293187, 6702341905823656245),
    (25, 2049736672, 1503448500679765431),
    (32, 2035626675, 13139644296358924898),
    (33, 3483280459, 17464935208016327638),
    (64, 1914633394, 11969014710983234708),
    (65, 1026644692, 16446268016611384993),
    (127, 4146177873, 3861022753806430426),
]


@pytest.fixture(scope="module")
def farmhash():
    """The module in the source tree, whatever is installed."""
    spec = importlib.util.spec_from_file_location("farmhash_source", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("length", "in_32_bits", "in_64_bits"), FINGERPRINTS)
def test_fingerprints_are_those_of_the_original(farmhash, length, in_32_bits, in_64_bits):
    assert farmhash.fingerprint32(TEXT[:length]) == in_32_bits
    assert farmhash.fingerprint64(TEXT[:length]) == in_64_bits


def test_text_is_hashed_as_its_utf_8_bytes(farmhash):
    assert farmhash.fingerprint32("é한") == farmhash.fingerprint32("é한".encode()) == 2703010965
    assert farmhash.fingerprint64("é한") == farmhash.fingerprint64("é한".encode()) == 17306774633395675730
