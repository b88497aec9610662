package main

import (
	"errors"
	"fmt"
	"log"
	"os"

	"models.local/mlp"
	"models.local/odd"
)

func show[T any](name string, shape []int64, data []T) {
	fmt.Print(name)
	for _, extent := range shape {
		fmt.Print(" ", extent)
	}
	fmt.Print(":")
	for _, value := range data {
		fmt.Printf(" %v", value)
	}
	fmt.Println()
}

func fails(err error) {
	var wrong *mlp.Error
	var odd *odd.Error
	if errors.As(err, &wrong) {
		fmt.Println(int(wrong.Code), wrong)
	} else if errors.As(err, &odd) {
		fmt.Println(int(odd.Code), odd)
	} else if err != nil {
		fmt.Println(5, err)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	weights, err := mlp.ReadWeights(os.Args[1])
	must(err)
	defer weights.Close()
	first, err := mlp.New(weights)
	must(err)
	second, err := mlp.New(weights)
	must(err)
	must(second.Bind(mlp.Dims{N: 3}))
	x := make([]float32, mlp.DimNMax*32)
	for i := range x {
		x[i] = float32(i%32) / 32
	}
	for _, n := range []int64{1, 2, 8} {
		must(first.Bind(mlp.Dims{N: n}))
		outputs, err := first.Run(mlp.Inputs{X: x[:n*32]})
		must(err)
		show("y", outputs.Y.Shape, outputs.Y.Data)
	}
	outputs, err := second.Run(mlp.Inputs{X: x[:96]})
	must(err)
	show("y", outputs.Y.Shape, outputs.Y.Data)
	fails(first.Bind(mlp.Dims{N: 9}))
	_, err = first.Run(mlp.Inputs{X: x})
	fails(err)
	must(first.Bind(mlp.Dims{N: 2}))
	_, err = first.Run(mlp.Inputs{X: x})
	fails(err)
	_, err = mlp.ReadWeights("absent.bin")
	fails(err)
	second.Close()
	first.Close()

	net, err := odd.New()
	must(err)
	defer net.Close()
	values := []float32{1, 0, 2, 0, 0, 3, 0, 0}
	for _, length := range []int64{4, 0} {
		must(net.Bind(odd.Dims{N: 1, N_: 2, Seq_len: length}))
		outputs, err := net.Run(odd.Inputs{Class: values[:2*length], A_b: []int64{5, 6}, A_b_: []uint8{1, 0}})
		must(err)
		show("return", outputs.Return.Shape, outputs.Return.Data)
		if length == 4 {
			show("N", outputs.N.Shape, outputs.N.Data)
		}
		show("where", outputs.Where.Shape, outputs.Where.Data)
	}
	fails(net.Bind(odd.Dims{N: 1, N_: 2, Seq_len: odd.DimSeq_lenMultiple + 2}))
}
