package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func in(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }

func at(hours float64) string { return in(hours).Format(time.RFC3339) }

// A machine, and an instance of a uniform scale set, as Azure writes them and as they
// are named here.
const (
	vm      = "/subscriptions/5ub/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/gpu-1"
	low     = "/subscriptions/5ub/resourcegroups/rg/providers/microsoft.compute/virtualmachines/gpu-1"
	member  = "/subscriptions/5ub/resourceGroups/RG/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3"
	lowerly = "/subscriptions/5ub/resourcegroups/rg/providers/microsoft.compute/virtualmachinescalesets/pool/virtualmachines/3"
)

// redeployment is a maintenance whose window is from begin to begin+24, with the self-service
// phase in the day before.
func redeployment(begin float64) *armcompute.MaintenanceRedeployStatus {
	return &armcompute.MaintenanceRedeployStatus{
		IsCustomerInitiatedMaintenanceAllowed: new(true), LastOperationResultCode: new(armcompute.MaintenanceOperationResultCodeTypesNone),
		PreMaintenanceWindowStartTime: new(in(begin - 24)), PreMaintenanceWindowEndTime: new(in(begin)),
		MaintenanceWindowStartTime: new(in(begin)), MaintenanceWindowEndTime: new(in(begin + 24)),
	}
}

func machine(id string, m *armcompute.MaintenanceRedeployStatus) *armcompute.VirtualMachine {
	return &armcompute.VirtualMachine{ID: &id, Properties: &armcompute.VirtualMachineProperties{InstanceView: &armcompute.VirtualMachineInstanceView{MaintenanceRedeployStatus: m}}}
}

func member3(id string, m *armcompute.MaintenanceRedeployStatus) *armcompute.VirtualMachineScaleSetVM {
	return &armcompute.VirtualMachineScaleSetVM{ID: &id, Properties: &armcompute.VirtualMachineScaleSetVMProperties{InstanceView: &armcompute.VirtualMachineScaleSetVMInstanceView{MaintenanceRedeployStatus: m}}}
}

// updateRow is a row of Resource Graph.
func updateRow(id, impact, status string, notBefore float64) any {
	return map[string]any{
		"id": id + "/providers/Microsoft.Maintenance/updates/1", "name": strings.ToLower(id),
		"update": map[string]any{"maintenanceScope": "Host", "impactType": impact, "status": status, "impactDurationInSec": 600, "notBefore": at(notBefore), "notificationId": "PYN_-ZL8"},
	}
}

func read(t *testing.T, s *Source, q announcement.Question) announcement.Reading {
	t.Helper()
	if q.Now.IsZero() {
		q.Now = now
	}
	r, err := s.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// only is the one announcement of a reading.
func only(t *testing.T, r announcement.Reading) announcement.Announcement {
	t.Helper()
	if len(r.Announcements) != 1 {
		t.Fatalf("%d announcements, want 1: %+v", len(r.Announcements), r.Announcements)
	}
	return r.Announcements[0]
}

func pauses(c *CloudConfig) { c.Pauses = true }

func TestCodes(t *testing.T) {
	for _, c := range append(Codes(), announcement.Unknown("Levitate")) {
		cloud := newCloud()
		if c.Name == "maintenanceRedeployStatus" {
			cloud.machines = []*armcompute.VirtualMachine{machine(vm, redeployment(2))}
		} else {
			cloud.rows = []any{updateRow(vm, c.Name, "Pending", 2)}
		}
		a := only(t, read(t, connect(t, cloud, pauses), announcement.Question{}))
		if a.Code != c.Name || a.Action != c.Action || a.Machine != low || !a.Begin.Equal(in(2)) || a.Emergency || a.Unplanned {
			t.Errorf("%+v, want %+v", a, c)
		}
		quiet := c.Name == "Freeze" || c.Name == "None"
		if r := read(t, connect(t, cloud, fullAccess), announcement.Question{}); (len(r.Announcements) == 0) != quiet {
			t.Errorf("%s without pauses: %+v", c.Name, r.Announcements)
		}
	}
}

// The statuses of updates (source: https://learn.microsoft.com/en-us/rest/api/maintenance/updates/list).
func TestStatesOfUpdates(t *testing.T) {
	for _, tt := range []struct {
		status    string
		notBefore float64
		want      announcement.State
	}{
		{"Pending", 2, announcement.Scheduled},
		{"Pending", -2, announcement.Ongoing},
		{"InProgress", 2, announcement.Ongoing},
		{"Completed", 2, announcement.Completed},
		{"RetryNow", 2, announcement.Scheduled},
		{"RetryLater", 2, announcement.Scheduled},
		{"Odd", 2, announcement.Scheduled},
	} {
		cloud := newCloud()
		cloud.rows = []any{updateRow(vm, "Restart", tt.status, tt.notBefore)}
		a := only(t, read(t, connect(t, cloud, fullAccess), announcement.Question{Open: []string{low + "|PYN_-ZL8"}}))
		if a.State != tt.want || !a.End.Equal(in(tt.notBefore).Add(10*time.Minute)) || a.Metadata["status"] != tt.status {
			t.Errorf("%s at %v: %+v, want %s", tt.status, tt.notBefore, a, tt.want)
		}
	}
}

// The states of instance views (source: MaintenanceRedeployStatus in
// https://learn.microsoft.com/en-us/rest/api/compute/virtual-machines/instance-view).
func TestStatesOfViews(t *testing.T) {
	for _, tt := range []struct {
		code  armcompute.MaintenanceOperationResultCodeTypes
		begin float64
		want  announcement.State
	}{
		{armcompute.MaintenanceOperationResultCodeTypesNone, 2, announcement.Scheduled},
		{armcompute.MaintenanceOperationResultCodeTypesNone, -2, announcement.Ongoing},
		{armcompute.MaintenanceOperationResultCodeTypesRetryLater, 2, announcement.Scheduled},
		{armcompute.MaintenanceOperationResultCodeTypesMaintenanceAborted, 2, announcement.Scheduled},
		{armcompute.MaintenanceOperationResultCodeTypesMaintenanceCompleted, 2, announcement.Completed},
		{"Odd", 2, announcement.Scheduled},
	} {
		cloud := newCloud()
		m := redeployment(tt.begin)
		m.LastOperationResultCode = &tt.code
		cloud.machines = []*armcompute.VirtualMachine{machine(vm, m), machine(vm+"2", nil), {}}
		a := only(t, read(t, connect(t, cloud, fullAccess), announcement.Question{Open: []string{low + "|redeploy/" + at(tt.begin)}}))
		if a.State != tt.want || a.Metadata["lastOperationResultCode"] != string(tt.code) || a.Metadata["preMaintenanceWindowStartTime"] != at(tt.begin-24) {
			t.Errorf("%s at %v: %+v, want %s", tt.code, tt.begin, a, tt.want)
		}
	}
}

// One maintenance that both report is one announcement, whichever reports it first.
func TestMaintenanceLifecycles(t *testing.T) {
	shown := func(begin float64) []*armcompute.VirtualMachine {
		return []*armcompute.VirtualMachine{machine(vm, redeployment(begin))}
	}
	gone := []*armcompute.VirtualMachine{machine(vm, nil)}
	reported := func(status string, notBefore float64) []any {
		return []any{updateRow(vm, "Redeploy", status, notBefore)}
	}
	type step struct {
		hour     float64
		machines []*armcompute.VirtualMachine
		rows     []any
		want     string // states and ids of what is announced
	}
	for name, steps := range map[string][]step{
		"the view alone": {{0, shown(30), nil, "Scheduled redeploy/30"}, {31, shown(30), nil, "Ongoing redeploy/30"}, {32, gone, nil, ""}},
		"the view moves": {{0, shown(30), nil, "Scheduled redeploy/30"}, {20, shown(60), nil, "Scheduled redeploy/30"}},
		"the update alone": {{0, gone, reported("Pending", 30), "Scheduled PYN_-ZL8"}, {31, gone, reported("InProgress", 30), "Ongoing PYN_-ZL8"},
			{32, gone, reported("Completed", 30), "Completed PYN_-ZL8"}, {33, gone, reported("Completed", 30), ""}},
		"the view first": {{0, shown(30), nil, "Scheduled redeploy/30"}, {1, shown(30), reported("Pending", 30), "Scheduled redeploy/30"},
			{10, shown(30), reported("InProgress", 30), "Ongoing redeploy/30"}, {11, shown(30), reported("Completed", 30), "Completed redeploy/30"}, {12, shown(30), reported("Completed", 30), ""}},
		"the update first":     {{0, gone, reported("Pending", 30), "Scheduled PYN_-ZL8"}, {1, shown(30), reported("Pending", 30), "Scheduled PYN_-ZL8"}, {31, gone, nil, ""}},
		"two of one machine":   {{0, shown(30), reported("Pending", 200), "Scheduled PYN_-ZL8, Scheduled redeploy/30"}},
		"a new one later":      {{0, shown(30), nil, "Scheduled redeploy/30"}, {300, shown(400), nil, "Scheduled redeploy/400"}},
		"first seen under way": {{0, shown(-1), nil, "Ongoing redeploy/-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud()
			source := connect(t, cloud, fullAccess)
			q := announcement.Question{}
			for i, step := range steps {
				cloud.machines, cloud.rows, q.Now = step.machines, step.rows, in(step.hour)
				r := read(t, source, q)
				q.Open = nil
				var got []string
				for _, a := range r.Announcements {
					_, key, _ := strings.Cut(a.ID, "|")
					if begin, ok := strings.CutPrefix(key, "redeploy/"); ok {
						when, err := time.Parse(time.RFC3339, begin)
						if err != nil {
							t.Fatal(err)
						}
						key = fmt.Sprint("redeploy/", when.Sub(now).Hours())
					}
					got = append(got, string(a.State)+" "+key)
					if a.State == announcement.Scheduled || a.State == announcement.Ongoing {
						q.Open = append(q.Open, a.ID)
					}
				}
				if strings.Join(got, ", ") != step.want || !r.Complete || r.Checkpoint != "" {
					t.Errorf("step %d: %q, want %q", i, got, step.want)
				}
			}
		})
	}
}

// The scale sets are those of the cluster's machines and of what is open; one that is
// gone has no instances.
func TestScaleSets(t *testing.T) {
	cloud := newCloud()
	cloud.sets["rg/pool"] = []*armcompute.VirtualMachineScaleSetVM{member3(member, redeployment(2)), member3(member+"4", nil)}
	source := connect(t, cloud, fullAccess)
	if r := read(t, source, announcement.Question{Machines: []announcement.Machine{{Name: low}}}); len(r.Announcements) != 0 || r.Calls != 2 {
		t.Errorf("%+v", r)
	}
	q := announcement.Question{Machines: []announcement.Machine{{Name: lowerly}, {Name: lowerly + "4"}, {Name: strings.ReplaceAll(lowerly, "pool", "gone")}}}
	r := read(t, source, q)
	a := only(t, r)
	if a.Machine != lowerly || r.Calls != 4 {
		t.Errorf("%+v by %d calls", a, r.Calls)
	}
	if b := only(t, read(t, source, announcement.Question{Open: []string{a.ID}})); b.ID != a.ID {
		t.Errorf("%+v", b)
	}
}

// Whatever goes wrong with the third call of five, and stays so, leaves no reading; what
// the SDK's retries get over leaves the whole one.
func TestFaults(t *testing.T) {
	for _, operation := range []string{"machines", "set", "updates"} {
		for _, f := range []fault{429, 500, 502, 503, 504, 401, 403, 400, 0} {
			for _, times := range []int{1, 9} {
				t.Run(fmt.Sprint(operation, " ", f, " ", times), func(t *testing.T) {
					cloud := newCloud()
					cloud.page = 2
					for i := range 10 {
						cloud.machines = append(cloud.machines, machine(fmt.Sprint(vm, i), redeployment(2)))
						cloud.sets["rg/pool"] = append(cloud.sets["rg/pool"], member3(fmt.Sprint(member, i), redeployment(2)))
					}
					for i := range 100 {
						cloud.rows = append(cloud.rows, updateRow(fmt.Sprint(vm, "-", i), "Restart", "Pending", 2))
					}
					cloud.faults[operation+" 3"] = slices.Repeat([]fault{f}, times)
					r, err := connect(t, cloud, fullAccess).Read(t.Context(), announcement.Question{Now: now, Machines: []announcement.Machine{{Name: lowerly}}})
					passes := times == 1 && (f == 429 || f >= 500)
					switch {
					case passes && (err != nil || len(r.Announcements) != 120 || r.Calls != 15):
						t.Errorf("%d announcements, %d calls, %v; want 120 by 15", len(r.Announcements), r.Calls, err)
					case !passes && (f != 0 || times > 1) && (err == nil || r.Announcements != nil):
						t.Errorf("a reading %d, %v; want none", len(r.Announcements), err)
					case f == 0 && err == nil && len(r.Announcements) != 120:
						t.Errorf("part of a reading: %d", len(r.Announcements))
					case times > 1 && (f == 429 || f >= 500) && len(cloud.faults[operation+" 3"]) != 5:
						t.Errorf("%d attempts, want 4", 9-len(cloud.faults[operation+" 3"]))
					}
				})
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := connect(t, newCloud(), fullAccess).Read(ctx, announcement.Question{Now: now}); err == nil {
		t.Error("a reading after the end")
	}
}

// Rows of another form are an error, not an empty list.
func TestOddRows(t *testing.T) {
	cloud := newCloud()
	cloud.rows = []any{map[string]any{"id": 7}}
	if _, err := connect(t, cloud, fullAccess).Read(t.Context(), announcement.Question{Now: now}); err == nil {
		t.Error("odd rows were read")
	}
	cloud.rows = []any{updateRow("/subscriptions/5ub/resourceGroups/RG/providers/Microsoft.Sql/servers/s", "Restart", "Pending", 2), map[string]any{"id": "x", "name": low, "update": map[string]any{"impactType": "Restart", "status": "Pending"}}}
	if a := only(t, read(t, connect(t, cloud, fullAccess), announcement.Question{})); a.Machine != low || !a.Begin.IsZero() || a.ID != low+"|/Restart/" {
		t.Errorf("%+v", a)
	}
}

func TestCheck(t *testing.T) {
	cloud := newCloud()
	source := connect(t, cloud, fullAccess)
	if err := source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"machines", "updates"} {
		cloud.requests, cloud.faults[operation+" 1"] = nil, []fault{403}
		if err := source.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "role") {
			t.Errorf("%s: %v", operation, err)
		}
	}
	cloud.requests, cloud.faults["updates 1"] = nil, []fault{403}
	alone := connect(t, cloud, func(c *CloudConfig) { c.WithoutUpdates = true })
	if err := alone.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if r := read(t, alone, announcement.Question{}); r.Calls != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := New(CloudConfig{Subscription: "s", Cloud: "moon"}); err == nil || !strings.Contains(err.Error(), "public, government or china") {
		t.Errorf("cloud: %v", err)
	}
	if _, err := As(CloudConfig{}, nil, nil); err == nil {
		t.Error("a source without a subscription")
	}
}

func TestMachine(t *testing.T) {
	for providerID, want := range map[string]string{
		"azure://" + vm:                low,
		"azure://" + low:               low,
		"azure://" + member:            lowerly,
		vm:                             "",
		"":                             "",
		"azure://":                     "",
		"azure://" + vm + "/x":         "",
		"azure://" + member + "x":      "",
		"azure://" + vm + "\n":         "",
		"aws:///us-west-2a/i-01234567": "",
		"azure:///subscriptions/5ub/resourceGroups/rg/providers/Microsoft.Compute/disks/d": "",
	} {
		got, ok := (&Source{}).Machine(providerID)
		if got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v; want %q", providerID, got, ok, want)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add("azure://" + vm)
	f.Add("azure://" + member)
	f.Fuzz(func(t *testing.T, providerID string) {
		got, ok := (&Source{}).Machine(providerID)
		if ok != (got != "") || ok && (!strings.EqualFold(providerID, "azure://"+got) || strings.ContainsAny(got, "|\n ")) && !strings.Contains(providerID, "|") {
			t.Errorf("%q is %q, %v", providerID, got, ok)
		}
	})
}

// fleet is 5,000 machines and 5,000 instances of two scale sets, of which 2,000 have a
// maintenance that is shown and reported.
func fleet(c *azureCloud) []announcement.Machine {
	var out []announcement.Machine
	for i := range 5000 {
		one, other := fmt.Sprint(vm, i), strings.ReplaceAll(fmt.Sprint(member, i), "pool", fmt.Sprint("pool", i%2))
		var m *armcompute.MaintenanceRedeployStatus
		if i%5 == 0 {
			m = redeployment(5)
			c.rows = append(c.rows, updateRow(one, "Redeploy", "Pending", 5), updateRow(other, "Redeploy", "Pending", 5))
		}
		c.machines = append(c.machines, machine(one, m))
		set := fmt.Sprint("rg/pool", i%2)
		c.sets[set] = append(c.sets[set], member3(other, m))
		out = append(out, announcement.Machine{Name: strings.ToLower(one)}, announcement.Machine{Name: strings.ToLower(other)})
	}
	return out
}

func TestCallsOfALargeFleet(t *testing.T) {
	testkit.Long(t, "the faults on a page in the middle, and the lives, read page by page")
	cloud := newCloud()
	q := announcement.Question{Now: now, Machines: fleet(cloud)}
	source := connect(t, cloud, fullAccess)
	// 50 pages of machines and 25 of each scale set, at 100 each; 2 of updates.
	r := read(t, source, q)
	if len(r.Announcements) != 2000 || r.Calls != 102 || len(cloud.requests) != 102 {
		t.Errorf("%d announcements by %d calls, %d requests", len(r.Announcements), r.Calls, len(cloud.requests))
	}
}

func BenchmarkRead(b *testing.B) {
	cloud := newCloud()
	q := announcement.Question{Now: now, Machines: fleet(cloud)}
	source := connect(b, cloud, fullAccess)
	b.ReportAllocs()
	for b.Loop() {
		r, err := source.Read(b.Context(), q)
		if err != nil || len(r.Announcements) != 2000 {
			b.Fatal(len(r.Announcements), err)
		}
		cloud.requests = nil
	}
}

// The page's table is the code's.
func TestTheTableOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../maintenance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), announcement.Markdown(Codes())) {
		t.Errorf("maintenance.md lacks this table:\n%s", announcement.Markdown(Codes()))
	}
	names := map[string]bool{}
	for _, c := range Codes() {
		names[c.Name] = true
	}
	if len(names) != len(Codes()) {
		t.Errorf("a code stands twice: %v", slices.Sorted(maps.Keys(names)))
	}
}
