package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
)

// The names of contested machines are their computer names and those of machines in no
// scale set; one that is gone, or of another subscription, has none.
func TestNames(t *testing.T) {
	c := newCloud()
	alone, inSet := machine(vm, nil), member3(member, nil)
	alone.Properties.OSProfile = &armcompute.OSProfile{ComputerName: new("host-1")}
	inSet.Properties.OSProfile = &armcompute.OSProfile{ComputerName: new("pool000003")}
	c.machines, c.sets["rg/pool"] = []*armcompute.VirtualMachine{alone}, []*armcompute.VirtualMachineScaleSetVM{inSet}
	source := connect(t, c, fullAccess)
	want := map[string][]string{low: {"gpu-1", "host-1"}, lowerly: {"pool000003"}}
	got, err := source.Names(t.Context(), []string{low, lowerly, low + "-gone", strings.Replace(low, "5ub", "other", 1)})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	c.faults["machines 3"] = []fault{403}
	if got, err := source.Names(t.Context(), []string{low}); err == nil || len(got) != 0 {
		t.Errorf("without the right: %v, %v; books %v", got, err, c.requests)
	}
}
