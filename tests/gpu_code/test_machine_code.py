"""Reading PTX, tested on a program written by hand, and the CTAs that an SM holds, against NVIDIA's tables."""

import pytest

from tests.gpu_code.machine_code import Program, resident_ctas

PTX = """
.version 8.7
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1,
	.param .u32 kernel_param_2,
	.param .u64 .ptr .global .align 1 kernel_param_3
)
.reqntid 128
{
	.reg .pred 	%p<9>;
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b64 	%rd2, [kernel_param_1];
	ld.param.b32 	%r1, [kernel_param_2];
	ld.param.b64 	%rd3, [kernel_param_3];
	bar.sync 	0;                       // before any loop
	// begin inline asm
	mov.u32 %r2, 0x0;
	@%p1 ld.global.b32 { %r2 }, [ %rd1 + 0 ];
	// end inline asm
	setp.gt.s32 	%p2, %r1, 0;
	@%p2 bra 	$L__BB0_2;
	bra.uni 	$L__BB0_5;
$L__BB0_2:                              // the outer loop
	add.s64 	%rd4, %rd1, 4;
	@%p1 ld.global.L1::evict_first.b32 { %r3 }, [ %rd4 + 0 ];
	bar.sync 	0;
$L__tmp1:
	mad.wide.s32 	%rd5, %r3, 4, %rd2;
	st.shared.b64 	[ %r9 + 0 ], %rd5;
$L__BB0_3:                              // the inner loop
	ld.shared.v2.b64 	{%rd6, %rd7}, [%r9];
	add.s64 	%rd8, %rd6, 16;
	@%p1 ld.global.L2::cache_hint.v4.b32 { %r4, %r5, %r6, %r7 }, [ %rd8 + 0 ], %rd9;
	cp.async.ca.shared.global [ %r9 + 0 ], [ %rd7 + 0 ], 0x8, %r8;
	barrier.sync 	0;
	bar.sync 	0;
	@%p3 bra 	$L__BB0_3;
	wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r4, %r5}, %rd10, %rd11, 1, 1, 1, 0, 0;
	@%p4 bra 	$L__BB0_2;
$L__BB0_5:
	add.s64 	%rd12, %rd3, %rd13;
	st.global.v2.b32 [ %rd12 + 0 ], { %r4, %r5 };
	ret;
}
"""


def test_loads_loops_and_barriers() -> None:
    program = Program(PTX, {0: "index", 1: "x", 3: "out"})
    accesses = [(*access.arguments, access.num_bytes, access.is_load) for access in program.accesses]
    loads = [("index", 4, True), ("index", 4, True), ("x", 16, True), ("x", 8, True)]
    assert accesses == [*loads, ("out", 8, False)]
    assert len(program.loops) == 2
    (inner,) = program.innermost({"x"})
    assert [access.num_bytes for access in program.accesses if access.place in inner] == [16, 8]
    assert program.barriers(inner) == 2
    (outer,) = program.innermost({"index"})
    assert set(inner) < set(outer) and program.barriers(outer) == 3


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "num_warps", "ctas"),
    [
        (32, 0, 4, 16),  # 64 warps
        (16, 0, 1, 32),  # 32 CTAs
        (96, 0, 4, 5),  # 96 x 32 registers a warp: 5 warps in each of the four partitions
        (168, 0, 4, 3),
        (169, 0, 4, 2),  # rounded up to 176
        (255, 0, 8, 1),
        (32, 227 * 1024, 4, 1),  # the most that a CTA may have
        (32, 113 * 1024, 4, 2),  # 2 x (113 + 1) = 228 KB
        (32, 113 * 1024 + 1, 4, 1),
    ],
)
def test_resident_ctas(registers: int, shared_bytes: int, num_warps: int, ctas: int) -> None:
    assert resident_ctas(registers, shared_bytes, num_warps) == ctas
