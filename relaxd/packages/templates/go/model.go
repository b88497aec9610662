// Package @module@ is @name@, compiled by relaxd for @target@.
package @module@

/*
#cgo CFLAGS: -I${SRCDIR}
@each shared@
#cgo LDFLAGS: -L${SRCDIR}/lib -l@prefix@ -Wl,-rpath,$ORIGIN -Wl,-rpath,${SRCDIR}/lib
@end@
@each archived@
#cgo LDFLAGS: -L${SRCDIR}/lib -l@prefix@ -lm
@end@
#include <stdlib.h>
#include "@prefix@.h"

// Memory at a multiple of 64; NULL where there is none left.
static void *aligned(size_t bytes) {
  void *at = NULL;
  return posix_memalign(&at, 64, bytes + 1) == 0 ? at : NULL;
}

// Each pointer into Go's memory is an argument of its own, which is what cgo's rules allow.
static int run(@prefix@ *model
@each inputs@
               , void *in@index@
@end@
@each outputs@
               , void *out@index@
@end@
) {
  const void *inputs[] = {
@each inputs@
      in@index@,
@end@
      NULL};
  void *outputs[] = {
@each outputs@
      out@index@,
@end@
      NULL};
  return @prefix@_run(model, inputs, outputs);
}
*/
import "C"

import (
	"fmt"
@each weights@
	"io"
	"os"
@end@
	"unsafe"
)

// Code is the kind of thing that a call found wrong.
type Code int

const (
	// ErrDim: a dim is out of its range, or no multiple of what it must be.
	ErrDim Code = C.RELAXD_DIM
	// ErrCheck: values of the inputs contradict the model.
	ErrCheck Code = C.RELAXD_CHECK
	// ErrMemory: there is no memory left, or tensors are larger than memory can be.
	ErrMemory Code = C.RELAXD_MEMORY
	// ErrKernel: a kernel failed.
	ErrKernel Code = C.RELAXD_KERNEL
	// ErrUsage: an input has another length than the dims give it, weights are of another model, or
	// calls are in the wrong order.
	ErrUsage Code = C.RELAXD_USAGE
)

// Error is what a call found wrong; errors.As finds it.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return e.Message }

@each dims@
// The values of @dim@: multiples of one number, from Min to Max.
const (
	Dim@dim@Min      int64 = @min@
	Dim@dim@Max      int64 = @max@
	Dim@dim@Multiple int64 = @multiple@
)

@end@
// Dims is what Bind takes.
type Dims struct {
@each dims@
	// @about@
	@dim@ int64
@end@
}
@each inputs@

// ShapeOf@tensor@ is the shape of that input at dims that Bind takes.
func ShapeOf@tensor@(d Dims) []int64 { return []int64{@shape@} }
@end@

// Inputs is what Run takes, each in C's order.
type Inputs struct {
@each inputs@
	// @about@
	@tensor@ []@type@
@end@
}
@each outputs@

// Output@tensor@ is an output in C's order.
type Output@tensor@ struct {
	Data  []@type@
	Shape []int64
}
@end@

// Outputs is what Run gives.
type Outputs struct {
@each outputs@
	// @about@
	@tensor@ Output@tensor@
@end@
}

// Count is the number of elements of a shape.
func Count(shape []int64) int64 {
	all := int64(1)
	for _, extent := range shape {
		all *= extent
	}
	return all
}

func smaller(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func larger(a, b int64) int64 {
	return a + b - smaller(a, b)
}
@each weights@

// Weights is the content of weights.bin, which any number of models share.
type Weights struct{ at unsafe.Pointer }

// ReadWeights reads a file weights.bin.
func ReadWeights(path string) (*Weights, error) {
	size := int64(C.@prefix@_interface().weights)
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if about.Size() != size {
		return nil, &Error{ErrUsage, fmt.Sprintf("%s has %d bytes, the weights of @short@ have %d", path, about.Size(), size)}
	}
	at := C.aligned(C.size_t(size))
	if at == nil {
		return nil, &Error{ErrMemory, "there is no memory left for weights"}
	}
	if _, err := io.ReadFull(file, unsafe.Slice((*byte)(at), size)); err != nil {
		C.free(at)
		return nil, err
	}
	return &Weights{at}, nil
}

// Close gives the memory back, after all models that share it are closed.
func (w *Weights) Close() {
	C.free(w.at)
	w.at = nil
}
@end@

// Model is a context of the model, for one goroutine at a time: Bind, then Run as often as you
// like. It computes in the thread that calls.
type Model struct {
	context *C.@prefix@
	arena   unsafe.Pointer
	dims    Dims
	bound   bool
}

// New makes a context of its own.
@each weights@
func New(weights *Weights) (*Model, error) {
	at := weights.at
@end@
@each embedded@
func New() (*Model, error) {
	var at unsafe.Pointer
@end@
	context := (*C.@prefix@)(C.aligned(C.@prefix@_size()))
	if context == nil {
		return nil, &Error{ErrMemory, "there is no memory left for a context"}
	}
	model := &Model{context: context}
	if err := model.check(C.@prefix@_open(context, at, nil)); err != nil {
		model.Close()
		return nil, err
	}
	return model, nil
}

// Close gives the memory of the model back.
func (m *Model) Close() {
	if m.context == nil {
		return
	}
	C.@prefix@_close(m.context)
	C.free(unsafe.Pointer(m.context))
	C.free(m.arena)
	*m = Model{}
}

func (m *Model) check(status C.int) error {
	if status == C.RELAXD_OK {
		return nil
	}
	return &Error{Code(status), C.GoString(C.@prefix@_failure(m.context))}
}

// Bind sets the dims.
func (m *Model) Bind(d Dims) error {
	if m.context == nil {
		return &Error{ErrUsage, "the model is closed"}
	}
	m.bound = false
	values := [@dim_count@ + 1]C.int64_t{
@each dims@
		C.int64_t(d.@dim@),
@end@
	}
	need := C.@prefix@_bind(m.context, &values[0])
	if need < 0 {
		return m.check(C.int(-need))
	}
	C.free(m.arena)
	m.arena = C.aligned(C.size_t(need))
	if m.arena == nil {
		return &Error{ErrMemory, "there is no memory left for the arena"}
	}
	if err := m.check(C.@prefix@_arena(m.context, m.arena)); err != nil {
		return err
	}
	m.dims, m.bound = d, true
	return nil
}

// Run computes the outputs, in memory of their own.
func (m *Model) Run(inputs Inputs) (outputs Outputs, err error) {
	if !m.bound {
		return outputs, &Error{ErrUsage, "bind the dims before a run"}
	}
	var none int64
	empty := unsafe.Pointer(&none)
@each inputs@
	in@index@ := empty
	if wanted := Count(ShapeOf@tensor@(m.dims)); int64(len(inputs.@tensor@)) != wanted {
		return outputs, wrong("@tensor@", len(inputs.@tensor@), wanted)
	} else if wanted != 0 {
		in@index@ = unsafe.Pointer(&inputs.@tensor@[0])
	}
@end@
@each outputs@
	var out@index@ unsafe.Pointer // nil where only the run knows the shape
	outputs.@tensor@.Shape = m.shape(@index@, @rank@)
	if known(outputs.@tensor@.Shape) {
		outputs.@tensor@.Data = make([]@type@, Count(outputs.@tensor@.Shape))
		out@index@ = empty
		if len(outputs.@tensor@.Data) != 0 {
			out@index@ = unsafe.Pointer(&outputs.@tensor@.Data[0])
		}
	}
@end@
	status := C.run(
		m.context,
@each inputs@
		in@index@,
@end@
@each outputs@
		out@index@,
@end@
	)
	if err := m.check(status); err != nil {
		return Outputs{}, err
	}
@each outputs@
	if out@index@ == nil {
		outputs.@tensor@.Shape = m.shape(@index@, @rank@)
		outputs.@tensor@.Data = make([]@type@, Count(outputs.@tensor@.Shape))
		if len(outputs.@tensor@.Data) != 0 {
			at := C.@prefix@_output(m.context, @index@)
			copy(outputs.@tensor@.Data, unsafe.Slice((*@type@)(at), len(outputs.@tensor@.Data)))
		}
	}
@end@
	return outputs, nil
}

func wrong(name string, elements int, wanted int64) error {
	return &Error{ErrUsage, fmt.Sprintf("%s has %d elements, it must have %d", name, elements, wanted)}
}

func known(shape []int64) bool {
	for _, extent := range shape {
		if extent < 0 {
			return false
		}
	}
	return true
}

func (m *Model) shape(output C.int, rank int) []int64 {
	shape := make([]int64, rank)
	if rank != 0 {
		copy(shape, unsafe.Slice((*int64)(C.@prefix@_shape(m.context, output)), rank))
	}
	return shape
}
