"""Released Sample Factory's `Timing` with gpuprof: `make test-frameworks`."""

from __future__ import annotations

from support.frameworks import Framework, InstrumentChecks, OwnTestChecks

SAMPLE_FACTORY = Framework(
    package="sample_factory",
    tried="2.1.1",
    scopes={"step", "train", "sample", "failing", "kept"},
    own_tests=("tests/test_utils.py",),
)
pytestmark = SAMPLE_FACTORY.needed


class TestInstruments(InstrumentChecks):
    """`timeit`, `add_time` and `time_avg`."""

    framework = SAMPLE_FACTORY


@SAMPLE_FACTORY.needs_checkout
class TestOwnTests(OwnTestChecks):
    """Of its utilities, `Timing` among them."""

    framework = SAMPLE_FACTORY
