"""Makes loops of functions that call themselves: the virtual machine takes a stack frame for each
call, so that a loop of some thousand iterations would end the process.
"""

from collections.abc import Iterator
from dataclasses import replace

from tvm import relax

from compiler.codegen import bytecode as bc
from compiler.codegen.bytecode import Bytecode, Function, Instruction, Operation
from compiler.errors import CodegenError

_COPY, _NOTHING = "vm.builtin.copy", "vm.builtin.null_value"


def without_tail_calls(executable: relax.VMExecutable) -> relax.VMExecutable:
    """The executable with every call of a function by itself replaced by a jump to its start;
    raises CodegenError for one whose result the function does not return as it is.

    An executable without such calls is returned as it is.
    """
    before = bc.read(executable)
    after = loops_for_tail_calls(before)
    return executable if after is before else bc.with_bytecode(executable, after)


def loops_for_tail_calls(code: Bytecode) -> Bytecode:
    """The bytecode with jumps in place of self-calls, the same object where it has none."""
    calling = {
        index: calls
        for index, function in enumerate(code.functions)
        if (calls := list(_self_calls(index, function)))
    }
    if not calling:
        return code
    functions = tuple(
        _loop(code, function, calling[index]) if index in calling else function
        for index, function in enumerate(code.functions)
    )
    return replace(code, functions=functions)


def _self_calls(index: int, function: Function) -> Iterator[int]:
    for position, instruction in enumerate(function.instructions):
        if instruction[0] == Operation.CALL and instruction[2] == index:
            yield position


def _loop(code: Bytecode, function: Function, calls: list[int]) -> Function:
    """The function with each of its self-calls a jump to instructions behind its end, which move
    the arguments to the first registers and jump to its start: no other offset changes.
    """
    for position in calls:
        instructions, call = list(function.instructions), function.instructions[position]
        dropped = _behind(code, function, position)
        moves, registers = _moves(code, call[4:], function.registers)
        instructions[position] = (Operation.GOTO, len(instructions) - position)
        back = len(instructions) + len(moves) + len(dropped)
        instructions += [*moves, *dropped, (Operation.GOTO, -back)]
        function = replace(function, instructions=tuple(instructions), registers=registers)
    return function


def _behind(code: Bytecode, function: Function, call: int) -> list[Instruction]:
    """The instructions behind a self-call that drop the values of registers; raises CodegenError
    where there are others than those, and those that return the call's result.
    """
    copy, nothing = code.index(_COPY), code.index(_NOTHING)
    result, position = function.instructions[call][1], call + 1
    dropped: list[Instruction] = []
    while True:
        instruction = function.instructions[position]
        match instruction:
            case (Operation.RET, register) if register == result:
                return dropped
            case (Operation.GOTO, offset) if offset > 0:
                position += offset
                continue
            case (Operation.CALL, target, callee, 1, source) if (callee, source) == (copy, result):
                result = target
            case (Operation.CALL, target, callee, 0) if callee == nothing and target != result:
                dropped.append(instruction)
            case _:
                raise CodegenError(
                    f"the function {function.name} goes on after it has called itself",
                    reason="tail_call",
                )
        position += 1


def _moves(
    code: Bytecode, arguments: tuple[int, ...], registers: int
) -> tuple[list[Instruction], int]:
    """Copies of the arguments into the first registers, as if at once, and the number of registers
    that the function needs with them: a parameter that another one takes goes by a register of its
    own, which keeps nothing afterwards.
    """
    copy, nothing = code.index(_COPY), code.index(_NOTHING)
    first: list[Instruction] = []
    then: list[Instruction] = []
    last: list[Instruction] = []
    for parameter, argument in enumerate(arguments):
        source = bc.register(argument)
        if source == parameter:
            continue
        if source is not None and source < len(arguments):
            first.append((Operation.CALL, registers, copy, 1, argument))
            last.append((Operation.CALL, registers, nothing, 0))
            argument, registers = registers, registers + 1
        then.append((Operation.CALL, parameter, copy, 1, argument))
    return [*first, *then, *last], registers
