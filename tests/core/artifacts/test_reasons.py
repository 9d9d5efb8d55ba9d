"""Each reason has its own sentence, and the receipt's JSON has both the name and the text."""

from __future__ import annotations

from gpuprof._artifacts.reasons import Reason
from gpuprof._artifacts.receipt import Receipt, ReceiptRow


def test_no_two_reasons_read_the_same() -> None:
    """But for those that consist of their detail."""
    sentences = [reason.value for reason in Reason if reason.value != "{detail}"]
    assert len(sentences) == len(set(sentences))


def test_the_json_of_a_row_has_the_name_and_the_text() -> None:
    """Programs compare the name; people read the text."""
    row = ReceiptRow("A-0", "n", "step-3", None, 0, "missing", Reason.NODE_DIED, "n")
    (entry,) = Receipt((row,), "/out/run").to_dict()["rows"]
    assert ("NODE_DIED", "its node n has died") == (entry["cause"], entry["reason"])


def test_a_detail_may_hold_braces() -> None:
    """As the message of an exception may."""
    assert "KeyError: {x}" == Reason.FAILED.text("KeyError: {x}")
