package main

import (
	"reflect"
	"testing"
)

// The name of a contested instance is its display name; one that OCI denies has none.
func TestNames(t *testing.T) {
	s := serve(t)
	s.instances = map[string]string{instance: "gpu-1"}
	source := connect(t, s)
	got, err := source.Names(t.Context(), []string{instance, instance + "gone"})
	if want := map[string][]string{instance: {"gpu-1"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	s.faults["instance 1"] = []fault{400}
	if got, err := source.Names(t.Context(), []string{instance}); err == nil || len(got) != 0 {
		t.Errorf("an error: %v, %v", got, err)
	}
}
