from pathlib import Path

from compiler.profile.machine import machine, processor


def test_the_processor_is_called_what_the_kernel_calls_it(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor 9000\n")
    assert processor(tmp_path) == "A Processor 9000"


def test_what_the_machine_does_not_tell_is_none(tmp_path: Path) -> None:
    record = machine(2, tmp_path)
    assert (record["governor"], record["threads"], len(record["load_average"])) == (None, 2, 3)


def test_the_governor_is_the_kernel_s(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_governor").write_text("schedutil\n")
    assert machine(2, tmp_path)["governor"] == "schedutil"
