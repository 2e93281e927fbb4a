package order

import (
	"strings"
	"testing"
	"time"
)

var example = Order{
	Key: "uid-1", Node: "gpu-7", BootID: "boot-0", Session: "s1",
	StartBy: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), SystemdTimeout: 90 * time.Second, Force: true,
}

func environment(o Order) func(string) string {
	values := map[string]string{}
	for _, v := range o.Variables() {
		values[v.Name] = v.Value
	}
	return func(name string) string { return values[name] }
}

func TestAnOrderIsReadAsItWasWritten(t *testing.T) {
	for _, o := range []Order{example, {Node: "a", BootID: "b", StartBy: example.StartBy}} {
		if got, err := Parse(environment(o)); err != nil || got != o {
			t.Errorf("%+v, %v; want %+v", got, err, o)
		}
	}
}

func TestAnIncompleteOrderIsRefused(t *testing.T) {
	for _, name := range []string{nodeName, bootName, startName, systemdName, forceName} {
		full := environment(example)
		_, err := Parse(func(n string) string {
			if n == name {
				return ""
			}
			return full(n)
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		boot string
		at   time.Duration
		want Result
		none bool
	}{
		"in time":            {"boot-0", -time.Second, "", false},
		"at the last moment": {"boot-0", 0, "", false},
		"late":               {"boot-0", time.Second, Late, true},
		"another boot":       {"boot-1", -time.Second, OtherBoot, true},
		"both":               {"boot-1", time.Second, OtherBoot, true},
		"an unknown boot":    {"", -time.Second, OtherBoot, true},
	} {
		if got, none := example.Check(tt.boot, example.StartBy.Add(tt.at)); got != tt.want || none != tt.none {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, none, tt.want, tt.none)
		}
	}
}

func TestResultsHaveCodesOfTheirOwn(t *testing.T) {
	for _, r := range []Result{Requested, OtherBoot, Late, Failed, Unreadable} {
		if got, ok := ResultOf(r.Code()); !ok || got != r {
			t.Errorf("%s has the code of %s", r, got)
		}
	}
	for _, code := range []int{1, 2, 125, 137, 143} {
		if r, ok := ResultOf(code); ok {
			t.Errorf("exit code %d is read as %s", code, r)
		}
	}
}

func TestRecordNamesWhoWhyAndWhichObject(t *testing.T) {
	want := "<12>nvsentinel-node-reboot: rebooting: requested by csp-plugin-node for maintenance object uid-1, node gpu-7, boot boot-0, quarantine session s1\n"
	if got := example.Record("rebooting"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	broken := Order{Node: "a\nb"}
	if got := broken.Record("x"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "object (none)") {
		t.Errorf("%q is not one line about no object", got)
	}
}
