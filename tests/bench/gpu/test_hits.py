"""What ncu prints, read; and what it prints where it may not count."""

import pytest

from fullgnn.bench.gpu.hits import METRIC, command, launches

OUTPUT = f"""==PROF== Connected to process 7
==PROF== Profiling "mark" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","mark","(128, 1, 1)","Command line profiler metrics","{METRIC}","%","12.5"
"1","7","void cusparse::csrmm<float>(int)","(128, 1, 1)","Command line profiler metrics","{METRIC}","%","61.25"
"2","7","mark","(128, 1, 1)","Command line profiler metrics","{METRIC}","%","12.5"
"3","7","sum_rows","(128, 1, 1)","Command line profiler metrics","{METRIC}","%","70.1"
"4","7","sum_rows","(128, 1, 1)","Command line profiler metrics","{METRIC}","%","80.1"
==PROF== Disconnected from process 7
"""


def test_launches_are_those_after_their_mark():
    found = launches(OUTPUT, [("torch ieee", 128), ("csr ieee", 41)])
    assert [(one["kernel"], one["width"], one["hit_rate_percent"]) for one in found] == [
        ("torch ieee", 128, 61.25),
        ("csr ieee", 41, 70.1),
        ("csr ieee", 41, 80.1),
    ]


def test_the_reason_is_ncu_s_own():
    refused = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access GPU counters"
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        launches(f"==PROF== Connected\n{refused}\n", [])
    with pytest.raises(ValueError, match="no table"):
        launches("", [])


def test_clocks_are_left_alone():
    assert "--clock-control none" in " ".join(command("ncu", {"graph": "reddit-like", "scale": 1.0}))
