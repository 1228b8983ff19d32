"""Reading the output of ncu, also where ncu is not permitted to read the counters of the GPU."""

import pytest

from fullgnn.bench.gpu.hits import METRIC, METRICS, command, launches

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
    counts = launches(OUTPUT, [("torch", 128), ("csr", 41)])
    rates = [(launch["kernel"], launch["width"], launch["hit_rate_percent"]) for launch in counts]
    assert rates == [("torch", 128, 61.25), ("csr", 41, 70.1), ("csr", 41, 80.1)]


def test_several_metrics_of_a_launch_are_one_entry():
    """Values in any multiple become GB/s, ms and per cent, and a mark with two metrics is one mark."""
    head = '"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit","Metric Value"'
    read = [
        (0, "mark", METRIC, "%", "1"),
        (0, "mark", "dram__bytes.sum.per_second", "byte/second", "0"),
        (1, "sum_rows", METRIC, "%", "70.5"),
        (1, "sum_rows", "dram__bytes.sum.per_second", "Tbyte/second", "4.1"),
        (1, "sum_rows", "lts__t_bytes.sum.per_second", "Gbyte/second", "5,200"),
        (1, "sum_rows", "gpu__time_duration.sum", "us", "250"),
        (1, "sum_rows", "l1tex__t_sector_hit_rate.pct", "%", "n/a"),
        (1, "sum_rows", "sm__cycles", "cycle", "7"),
    ]
    lines = [f'"{n}","7","{kernel}","(1)","x","{name}","{unit}","{value}"' for n, kernel, name, unit, value in read]
    (launch,) = launches("\n".join([head, *lines]), [("csr", 128)])
    about = {"kernel": "csr", "width": 128, "launched": "sum_rows", "l1_hit_rate_percent": None}
    counts = {"hit_rate_percent": 70.5, "dram_gb_per_s": 4100, "l2_gb_per_s": 5200, "duration_ms": 0.25}
    assert launch == about | {key: pytest.approx(value) for key, value in counts.items()}


def test_the_reason_is_ncu_s_own():
    refused = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access GPU counters"
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        launches(f"==PROF== Connected\n{refused}\n", [])
    with pytest.raises(ValueError, match="no table"):
        launches("", [])


def test_clocks_are_left_alone():
    line = " ".join(command("ncu", {"graph": "reddit-like", "scale": 1.0}, metrics=tuple(METRICS)))
    assert "--clock-control none" in line and ",".join(METRICS) in line
