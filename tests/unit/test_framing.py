"""The bytes of a layer are what gzip and tar say they are."""

import gzip
import io
import tarfile
import zlib

from hypothesis import given
from hypothesis import strategies as st

from torchyard import framing


@given(st.binary(max_size=200_000))
def test_a_stored_member_is_read_back_by_gzip(data: bytes) -> None:
    assert gzip.decompress(framing.stored_member(data)) == data


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 700)), max_size=40))
def test_a_packed_member_is_read_back_by_gzip(runs: list[tuple[int, int]]) -> None:
    data = b"".join(bytes([value]) * count for value, count in runs)
    assert gzip.decompress(framing.packed_member(data)) == data


def test_every_match_length_is_read_back() -> None:
    for count in range(1, 1100):
        data = b"a" + b"\0" * count + b"b"
        assert gzip.decompress(framing.packed_member(data)) == data


def test_a_tar_header_packs_to_less_than_half() -> None:
    header = framing.tar_header("opt/venv/lib/x.py", size=12, mode=0o644, mtime=0)
    assert len(framing.packed_member(header)) < len(header) / 2


@given(st.lists(st.binary(max_size=3000), max_size=5))
def test_members_of_a_foreign_deflate_stream_concatenate_to_a_tar(files: list[bytes]) -> None:
    out = []
    for number, data in enumerate(files):
        squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
        raw = squeeze.compress(data) + squeeze.flush()
        out.append(framing.packed_member(framing.tar_header(f"f{number}", size=len(data), mode=0o644, mtime=1)))
        out.append(framing.member_header() + raw + framing.member_trailer(zlib.crc32(data), len(data)))
        out.append(framing.packed_member(framing.padding(len(data))))
    out.append(framing.packed_member(framing.END_OF_ARCHIVE))
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(b"".join(out)))) as tar:
        assert [tar.extractfile(m).read() for m in tar.getmembers()] == files  # type: ignore[union-attr]
