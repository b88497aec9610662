// Runs @short@ once on made-up inputs, and prints the first numbers of its outputs.
package main

import (
	"fmt"
	"log"
@each weights@
	"os"
@end@

	model "models.local/@short@"
)

func main() {
@each weights@
	if len(os.Args) != 2 {
		log.Fatal("usage: example weights.bin")
	}
	weights, err := model.ReadWeights(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer weights.Close()
	net, err := model.New(weights)
@end@
@each embedded@
	net, err := model.New()
@end@
	if err != nil {
		log.Fatal(err)
	}
	defer net.Close()
	var dims model.Dims
@each dims@
	dims.@dim@ = @value@
@end@
	if err := net.Bind(dims); err != nil {
		log.Fatal(err)
	}
	var inputs model.Inputs
@each inputs@
	inputs.@tensor@ = numbers[@type@](model.ShapeOf@tensor@(dims))
@end@
	outputs, err := net.Run(inputs)
	if err != nil {
		log.Fatal(err)
	}
@each outputs@
	print("@tensor@", outputs.@tensor@.Shape, outputs.@tensor@.Data)
@end@
}

// numbers are 0, 1/8 ... 7/8 for floats, and 0 for whole numbers, which are good indices.
func numbers[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64](shape []int64) []T {
	all := make([]T, model.Count(shape))
	for i := range all {
		all[i] = T(float64(i%8) / 8)
	}
	return all
}

func print[T any](name string, shape []int64, data []T) {
	if len(data) > 8 {
		data = data[:8]
	}
	fmt.Println(name, shape, data)
}
