package main

import (
	"reflect"
	"testing"
)

// The name of an instance is the last part of its machine's, alone or in internal DNS.
func TestNames(t *testing.T) {
	source := connect(t, serve(t), fullAccess)
	want := map[string][]string{
		"p/z/gpu-1":            {"gpu-1", "gpu-1.z.c.p.internal", "gpu-1.c.p.internal"},
		"example.com:p/z/gpu2": {"gpu2", "gpu2.z.c.p.example.com.internal", "gpu2.c.p.example.com.internal"},
	}
	got, err := source.Names(t.Context(), []string{"p/z/gpu-1", "example.com:p/z/gpu2"})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
