"""Seeded damage to files, and readers of what is left, each in a process of its own.

A process that has imported everything forks once for each damaged file. The child has a deadline and a limit on its
memory, and ends at once if a file makes it start a program or change a file. So a crash, a hang, a flood of memory and
code from a file are seen, and nothing that a file does reaches the next case.
"""

import gc
import os
import pickle
import random
import resource
import signal
import struct
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fullgnn.distributed.worker import send
from fullgnn.errors import FullGNNError
from tests.commands import forked_worker

DEADLINE_S = 60
MEMORY = 1 << 30  # bytes that a child may take beyond those of its parent
FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn"}
FORBIDDEN |= {"os.rmdir", "os.kill", "socket.connect", "ctypes.dlopen", "shutil.rmtree"}

Check = Callable[..., None]
"""Reads what it is called with; raises the user error that refuses it, or an ``AssertionError`` if it is read wrong."""


def outcomes(check: Check, cases: Sequence[tuple[Any, ...]], whole: tuple[Any, ...] | None = None) -> list[str]:
    """What ``check(*case)`` came to for each case: ``right``, ``refused: `` with the message, or what went wrong.

    Args:
        whole: a case without damage. It is read before the process forks, so that no child loads the compiled code.
    """
    worker = forked_worker(send_outcomes, check, list(cases), whole)
    try:
        return list(worker.receive())
    finally:
        worker.kill()


def assert_refused_or_right(
    check: Check, cases: Sequence[tuple[Any, ...]], whole: tuple[Any, ...] | None = None
) -> None:
    """Every case is read right, or is refused by one line; some are refused. See ``outcomes``."""
    answers = outcomes(check, cases, whole)
    wrong = [(case, answer) for case, answer in zip(cases, answers) if not is_right(answer)]
    assert not wrong, f"{len(wrong)} of {len(cases)}, first with {wrong[0][0][-2:]}:\n{wrong[0][1]}"
    assert any(answer.startswith("refused: ") for answer in answers)


def is_right(outcome: str) -> bool:
    """Whether a file was read right, or refused by one short line."""
    return outcome == "right" or (outcome.startswith("refused: ") and "\n" not in outcome and len(outcome) < 2000)


def damaged(content: bytes, seed: int) -> bytes:
    """``content`` with one damage that any file may suffer, drawn from ``seed``."""
    rng = random.Random(seed)
    data = bytearray(content)
    length = max(1, len(data))
    place, size = rng.randrange(length), rng.choice((1, 2, 4, 16, 64, 512))
    kind = rng.randrange(8)
    if kind == 0:
        for _ in range(rng.choice((1, 1, 1, 8))):
            data[rng.randrange(length)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[place : place + size] = bytes(len(data[place : place + size]))
    elif kind == 3:
        data[place:place] = data[place : place + size]
    elif kind == 4:
        other = rng.randrange(length)
        data[place : place + size], data[other : other + size] = data[other : other + size], data[place : place + size]
    elif kind == 5:
        data += rng.randbytes(size)
    elif kind == 6:
        data[place : place + size] = rng.randbytes(size)
    else:
        del data[place : place + size]
    return bytes(data)


NUMBERS = (b"-1", b"0", b"2147483647", b"2147483648", b"4000000000", b"9223372036854775807", b"9223372036854775808")
NUMBERS += (b"1" + b"0" * 5000, b"1.5", b"1e3", b"nan", b"inf", b"", b"x", b"#", b"+2", b"1_0", b"0x1", b"\xc3\xa4")


def damaged_text(content: bytes, seed: int) -> bytes:
    """A text of numbers with a damage drawn from ``seed``: a number, a separator or a line is not what it was."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        return damaged(content, seed)
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(8)
    if kind < 4:
        for separator in (b",", b"\t", b" "):
            if separator in lines[at] or separator == b" ":
                break
        words = lines[at].split(separator)
        where = rng.randrange(len(words))
        if kind < 2:
            words[where] = rng.choice(NUMBERS)
        elif kind == 2:
            words.insert(where, rng.choice(NUMBERS))
        else:
            del words[where]
        lines[at] = separator.join(words)
    elif kind == 4:
        lines[at] = lines[at].replace(*rng.choice(((b",", b";"), (b"\t", b" "), (b" ", b"\t"), (b",", b",,"))))
    elif kind == 5:
        lines.insert(at, rng.choice((b"", b"# a comment", b"  ", b"id,id", lines[at], b"\x00" * 9)))
    elif kind == 6:
        del lines[at]
    else:
        return rng.choice((b"\r\n", b"\r", b"\x00")).join(lines)
    return b"\n".join(lines)


HEADERS = (
    lambda header, rng: _replaced(
        header, b"'descr': '", rng.choice((b"|O", b"|V8", b"<U9", b"<M8[s]", b">f4", b"<c16"))
    ),
    lambda header, rng: _replaced(header, b"'descr': '", rng.choice((b"<f8", b"<i4", b"<i8", b"|b1", b"|u1", b"<f2"))),
    lambda header, rng: header.replace(b"(", b"(1000000000000, ", 1),
    lambda header, rng: header.replace(b"(", b"(-", 1),
    lambda header, rng: header.replace(b"(", b"(2**70,", 1),
    lambda header, rng: header.replace(b"(", b"(0, ", 1),
    lambda header, rng: header.replace(b"(", b"(1, ", 1),
    lambda header, rng: header.replace(b"False", b"True"),
    lambda header, rng: header.replace(b"False", b"__import__('os').system('true')"),
    lambda header, rng: b"(" * 9000,
    lambda header, rng: header.replace(b"'shape'", b"'shapes'"),
)


def damaged_npy(content: bytes, seed: int) -> bytes:
    """A .npy of another header: a dtype, shape, order or version that its values do not have, or Python code."""
    rng = random.Random(seed)
    length = int.from_bytes(content[8:10], "little")
    header = rng.choice(HEADERS)(content[10 : 10 + length], rng)
    version = rng.choice((1, 1, 1, 1, 2, 3, 9))
    width = 2 if version == 1 else 4
    size = rng.choice((len(header),) * 4 + (60_000,)).to_bytes(width, "little")
    return content[:6] + bytes([version, 0]) + size + header + content[10 + length :]


def _replaced(header: bytes, before: bytes, text: bytes) -> bytes:
    start = header.index(before) + len(before)
    return header[:start] + text + header[header.index(b"'", start) :]


def damaged_npz(content: bytes, seed: int) -> bytes:
    """A .npz with a damage drawn from ``seed``: of any byte, of a size or checksum of the archive, or of a header."""
    rng = random.Random(seed)
    kind = rng.randrange(4)
    if kind == 0:
        return damaged(content, seed)
    members = unpacked(content)
    name = rng.choice(list(members))
    if kind == 1:
        members[name] = damaged_npy(members[name], seed)
        return packed(members, rng.random() < 0.5)
    if kind == 2:
        members[name] = damaged(members[name], seed)
        return packed(members, rng.random() < 0.5)
    data = bytearray(content)
    entries = [place for place in range(len(data) - 4) if data[place : place + 4] == b"PK\x01\x02"]
    field = rng.choice(entries) + rng.choice((8, 10, 16, 20, 24, 28, 42))  # flags, method, CRC, sizes, name, place
    value = rng.choice((0, 1, 8, 12, 14, 99, 0x7FFFFFFF, 0xFFFFFFFF, 3 << 30, rng.getrandbits(32)))
    wide = field - max(entry for entry in entries if entry <= field) in (16, 20, 24, 42)
    data[field : field + (4 if wide else 2)] = value.to_bytes(4, "little")[: 4 if wide else 2]
    return bytes(data)


def unpacked(content: bytes) -> dict[str, bytes]:
    """The members of a zip archive, by this module's own reading of its central directory, without the damaged ones."""
    end = content.rindex(b"PK\x05\x06")
    count, size, start = struct.unpack_from("<HII", content, end + 10)
    shift = end - size - start  # bytes before the archive
    place, members = start + shift, {}
    for _ in range(count):
        if content[place : place + 4] != b"PK\x01\x02":
            break
        flags, method, _, _, crc, packed_size, size, length, extra, comment = struct.unpack_from(
            "<HHHHIIIHHH", content, place + 8
        )
        name = content[place + 46 : min(place + 46 + length, end)].decode("latin1")
        local = struct.unpack_from("<I", content, place + 42)[0] + shift
        with suppress(struct.error, zlib.error):
            values = local + 30 + sum(struct.unpack_from("<HH", content, local + 26))
            data = content[values : values + packed_size]
            data = data if method == 0 else zlib.decompressobj(-15).decompress(data, size)
            if len(data) == size and zlib.crc32(data) == crc and method in (0, 8) and not flags & 1:
                members[name] = data
        place += 46 + length + extra + comment
    return members


def packed(members: dict[str, bytes], deflate: bool) -> bytes:
    """A zip archive with right checksums."""
    content, directory = b"", b""
    for name, data in members.items():
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        values = packer.compress(data) + packer.flush() if deflate else data
        about = struct.pack("<HHHHIIIHH", 0, 8 * deflate, 0, 33, zlib.crc32(data), len(values), len(data), len(name), 0)
        directory += (
            b"PK\x01\x02" + struct.pack("<HH", 20, 20) + about + struct.pack("<HHHII", 0, 0, 0, 0, len(content))
        )
        directory += name.encode()
        content += b"PK\x03\x04" + struct.pack("<H", 20) + about + name.encode() + values
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(content), 0)
    return content + directory + b"PK\x05\x06" + end


ODD = (
    None,
    -1,
    0,
    2**31,
    10**30,
    1e300,
    float("nan"),
    True,
    "x",
    "${oc.env:HOME}",
    "x" * 5000,
    [],
    [1],
    {},
    {"a": [0]},
)
"""Values that take the place of others."""


def edited(tree: Any, seed: int, odd: tuple[Any, ...] = ODD) -> Any:
    """``tree``, of which one value, anywhere below mappings and lists, is removed or becomes one that is ``odd``."""
    chance = random.Random(seed)
    places = list(_places(tree))
    place = chance.choice(places)
    return _with(tree, place, chance.choice([*odd, _with]))


def _places(tree: Any) -> Any:
    items: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (key,)
        yield from ((key, *place) for place in _places(value))


def _with(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``tree`` with ``value`` at ``place``; without that place if ``value`` is this function."""
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    key, *rest = place
    if rest:
        copy[key] = _with(copy[key], tuple(rest), value)
    elif value is _with:
        del copy[key]
    else:
        copy[key] = value
    return copy


def each_file(folder: Path) -> list[Path]:
    """All files in ``folder`` and below, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def send_outcomes(pipe: Connection, check: Check, cases: list[tuple[Any, ...]], whole: tuple[Any, ...] | None) -> None:
    """Answer with ``outcomes``, from a fork that has imported everything already."""
    if whole is not None:
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # children are forked, and threads are not
        check(*whole)
        torch.set_num_threads(before)
    gc.collect()
    gc.freeze()  # a child copies no page of what is imported to look for garbage
    send(pipe, [in_child(check, *case) for case in cases])


def in_child(check: Check, *case: Any) -> str:
    """What ``check(*case)`` came to in a fork of this process, which has no other threads: see ``outcomes``."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(check, case, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGALRM:
        return f"hangs: no answer in {DEADLINE_S} s"
    return str(pickle.loads(answer)) if answer else f"crashes: status {status}"


def _run(check: Check, case: tuple[Any, ...], writer: int) -> None:
    """In the child: never returns."""

    def answer(text: str) -> None:
        os.write(writer, pickle.dumps(text[-3000:]))
        os._exit(0)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            answer(f"runs code: {event} {args!r:.200}")

    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(DEADLINE_S)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
        sys.addaudithook(hook)
        check(*case)
        answer("right")
    except FullGNNError as error:
        answer(f"refused: {error}")
    except BaseException:
        answer(f"fails: {traceback.format_exc()}")
