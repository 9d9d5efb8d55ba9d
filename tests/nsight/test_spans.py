"""All that a report recorded, span by span, by the wall clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuprof_nsight import Report
from gpuprof_nsight._reports.export import ReportError
from support.cuda_tables import RELEASES, fill, make, thread

BEGAN = 1_795_000_000_000_000_000
MAIN, OTHER, CHILD = thread(100), thread(100, 5), thread(200)


@pytest.fixture(params=RELEASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An export of each release, with the ranges of two processes and a GPU's work."""
    path = tmp_path / "report.sqlite"
    make(path, request.param)
    fill(path, "TARGET_INFO_SESSION_START_TIME", [{"utcEpochNs": BEGAN}])
    names = enumerate(("gemm", "cudaLaunchKernel", "poll", "by number"), 1)
    fill(path, "StringIds", [{"id": number, "value": name} for number, name in names])
    domains = [
        (MAIN, 1, "gpuprof"),
        (MAIN, 2, "gpuprof-gate"),
        (MAIN, 3, "user"),
        (CHILD, 2, "gpuprof"),
    ]
    fill(
        path,
        "NVTX_EVENTS",
        [
            {"start": 0, "eventType": 75, "text": text, "globalTid": owner, "domainId": number}
            for owner, number, text in domains
        ],
    )
    events = [
        (MAIN, 2, 59, {"text": "gate"}, 0, 900),
        (MAIN, 1, 59, {"text": "train"}, 10, 90),
        (OTHER, 1, 60, {"textId": 4}, 20, 30),
        (CHILD, 2, 59, {"text": "load"}, 40, 50),
        (MAIN, 3, 59, {"text": "theirs"}, 60, 70),
        (MAIN, 0, 59, {"text": "anybody's"}, 60, 70),
        (MAIN, 1, 59, {"text": "never ended"}, 80, None),
    ]
    fill(
        path,
        "NVTX_EVENTS",
        [
            {
                "start": start,
                "end": end,
                "eventType": kind,
                "globalTid": of,
                "domainId": number,
                **name,
            }
            for of, number, kind, name, start, end in events
        ],
    )
    fill(path, "StringIds", [{"id": 5, "value": "loader"}])
    fill(path, "ThreadNames", [{"nameId": 5, "globalTid": OTHER}])
    call = {"globalTid": MAIN, "start": 15, "end": 18}
    fill(path, "CUPTI_ACTIVITY_KIND_RUNTIME", [{**call, "nameId": 2}])
    fill(path, "OSRT_API", [{**call, "nameId": 3}, {**call, "nameId": 3, "end": 15}])
    work = {"deviceId": 0, "streamId": 7, "start": 20, "end": 25}
    fill(path, "CUPTI_ACTIVITY_KIND_KERNEL", [{**work, "shortName": 1, "demangledName": 2}])
    copies = [{**work, "streamId": 8, "copyKind": kind} for kind in (1, 9)]
    fill(path, "CUPTI_ACTIVITY_KIND_MEMCPY", copies)
    fill(path, "CUPTI_ACTIVITY_KIND_MEMSET", [work])
    return path


def test_everything_is_on_the_track_of_its_thread_or_stream(database: Path) -> None:
    """Without the gate's range, and without a range that had not ended."""
    found = Report(database).recorded_tracks("gpuprof", "gpuprof-gate")
    assert {
        ("ranges", 100, 100, ""): [("train", 10, 90)],
        ("ranges", 100, 105, "loader"): [("by number", 20, 30)],
        ("ranges", 200, 200, ""): [("load", 40, 50)],
        ("NVTX user", 100, 100, ""): [("theirs", 60, 70)],
        ("NVTX ranges", 100, 100, ""): [("anybody's", 60, 70)],
        ("CUDA calls", 100, 100, ""): [("cudaLaunchKernel", 15, 18)],
        ("OS runtime", 100, 100, ""): [("poll", 15, 18)],
        ("kernels", 0, 0, "GPU 0, stream 7"): [("gemm", 20, 25)],
        ("copies", 0, 0, "GPU 0, stream 8"): [("copy host to device", 20, 25), ("copy", 20, 25)],
        ("memsets", 0, 0, "GPU 0, stream 7"): [("memset", 20, 25)],
    } == {
        (track.kind, track.process, track.thread, track.name): [
            (name, start - BEGAN, end - BEGAN) for name, start, end in track.spans
        ]
        for track in found
    }


def test_a_report_that_does_not_say_when_it_began(tmp_path: Path) -> None:
    """It cannot be put on a line of time."""
    path = tmp_path / "report.sqlite"
    make(path, RELEASES[0])
    with pytest.raises(ReportError, match="the time at which the session began is missing"):
        Report(path).recorded_tracks("gpuprof", "gpuprof-gate")
