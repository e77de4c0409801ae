"""What a processor gains by, of the words that Linux has for it."""

import pytest

from lstr.extractors import devices
from lstr.extractors.devices import fast_precision

AVX512 = "fpu avx2 avx512f avx512_vnni avx512_bf16"
CORES = "processor\t: 0\n{}\n\nprocessor\t: 1\nvendor_id\t: another\nflags\t\t: amx_bf16\n"


@pytest.mark.parametrize(
    ("told", "precision"),
    [
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512} amx_tile amx_bf16", "bf16"),
        (f"vendor_id\t: GenuineIntel\nflags\t\t: {AVX512}", "float32"),
        (f"vendor_id\t: AuthenticAMD\nflags\t\t: {AVX512}", "bf16"),
        ("vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f", "float32"),
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx2 amx_bf16_of_another_name", "float32"),
        ("Features\t: asimd bf16 i8mm", "float32"),
        ("", "float32"),
    ],
)
def test_fast_is_bfloat16_where_it_is_faster(monkeypatch, tmp_path, told, precision):
    monkeypatch.setattr(devices, "CPU", tmp_path / "cpuinfo")
    assert fast_precision("cpu") == "float32", "of another system nothing is known"
    devices.CPU.write_text(CORES.format(told))
    assert fast_precision("cpu") == precision
