package main

import (
	"reflect"
	"testing"
)

// The names of contested instances are their ids and their own private DNS names; one that
// is gone has none, and one that may not be asked about is an error.
func TestNames(t *testing.T) {
	s := serve(t)
	s.instances = []instance{{id: "i-00000001"}, {id: "i-00000002"}, {id: "i-00000003"}}
	s.dns = map[string]string{"i-00000001": "ip-10-0-0-1.us-west-2.compute.internal", "i-00000003": "other"}
	source := connect(t, s)
	want := map[string][]string{"i-00000001": {"i-00000001", "ip-10-0-0-1.us-west-2.compute.internal"}, "i-00000002": {"i-00000002", ""}}
	got, err := source.Names(t.Context(), []string{"i-00000001", "i-00000002", "i-0000000f"})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	s.faults["DescribeInstances 1"] = []fault{{403, "UnauthorizedOperation"}}
	if got, err := source.Names(t.Context(), []string{"i-00000001"}); err == nil || len(got) != 0 {
		t.Errorf("without the right: %v, %v", got, err)
	}
}
