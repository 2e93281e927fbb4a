package watch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lastRecovery is the newest healthy event of the XID check in a line, empty
// when there is none.
func (n *node) lastRecovery() string {
	n.t.Helper()
	events := fullLines(n.delivered())
	for _, event := range slices.Backward(events) {
		if strings.HasPrefix(event, "SysLogsXIDError") && strings.Contains(event, "| healthy |") {
			return strings.TrimPrefix(event, "SysLogsXIDError | ")
		}
	}
	return ""
}

const allHealthy = " | healthy | "

// TestOneUncuredFaultHoldsNoOtherBack: what the reboot ended is reported by
// name, on the same GPU and on others; what it did not end stays.
func TestOneUncuredFaultHoldsNoOtherBack(t *testing.T) {
	n := newNode(t)
	n.start()
	n.log(line("74", "0000:3b:00"), line("13", "0000:3b:00"), fallen, line("79", "0000:5e:00"), line("74", "0000:af:00"))
	n.passes()
	n.boot("boot-2")
	n.restart()
	n.passes()
	n.wait(2*time.Minute - time.Second)
	if got := n.lastRecovery(); got != "" {
		t.Fatalf("before it has settled: %s", got)
	}
	n.wait(time.Second)
	n.wait(time.Hour)
	var got []string
	for _, e := range fullLines(n.delivered()) {
		if strings.HasPrefix(e, "SysLogsXIDError") && strings.Contains(e, "healthy") {
			got = append(got, e)
		}
	}
	want := []string{
		"SysLogsXIDError | 13+79 | healthy | PCI=0000:3b:00 GPU_UUID=" + gpu0 + " GPU=0",
		"SysLogsXIDError | 79 | healthy | PCI=0000:5e:00",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recoveries (-want +got):\n%s", diff)
	}
	// What was reported as over is not reported again.
	n.boot("boot-3")
	n.passes()
	n.wait(time.Hour)
	if now := n.delivered(); len(fullLines(now)) != len(fullLines(n.delivered())) || n.lastRecovery() != strings.TrimPrefix(want[1], "SysLogsXIDError | ") {
		t.Errorf("after another reboot: %v", fullLines(now))
	}
	if v := n.value("nvsentinel_syslog_monitor_recoveries_total", "SysLogsXIDError", "NotCured"); v != 2 {
		t.Errorf("settled with a fault left %v times", v)
	}
}

// TestAPersonsClearingReachesTheMemory: the connector names the record beside
// its socket; the next reboot reports the whole check again.
func TestAPersonsClearingReachesTheMemory(t *testing.T) {
	for _, by := range []string{"while the monitor runs", "while it is down"} {
		t.Run(by, func(t *testing.T) {
			n := newNode(t)
			n.cleared = n.path("cleared")
			n.start()
			n.log(line("74", "0000:3b:00"), line("74", "0000:5e:00"))
			n.passes()
			events := n.delivered()
			if by == "while it is down" {
				n.end()
			}
			n.write("cleared", `{"records":["unknown","`+events[0].ID+`"]}`)
			if n.stop == nil {
				n.start()
			}
			n.passes()
			n.remove("cleared") // the folder of the socket does not outlive a reboot
			n.boot("boot-2")
			n.restart()
			n.passes()
			n.wait(time.Hour)
			if got := n.lastRecovery(); got != "" {
				t.Errorf("with the other GPU's fault left: %s", got)
			}
			n.write("cleared", fmt.Sprintf(`{"records":[%q]}`, events[1].ID))
			n.passes()
			n.boot("boot-3")
			n.passes()
			n.wait(time.Hour)
			if got := n.lastRecovery(); got != allHealthy {
				t.Errorf("with nothing left: %q", got)
			}
		})
	}
}

// TestAForgedClearingIsNotBelieved: a file that others may write, or that is
// none, clears nothing and stops nothing.
func TestAForgedClearingIsNotBelieved(t *testing.T) {
	for name, content := range map[string]string{"writable by others": `{"records":["%s"]}`, "damaged": `{"records":["%s"`, "huge": strings.Repeat(" ", 1<<20) + `{"records":["%s"]}`} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.cleared = n.path("cleared")
			n.start()
			n.log(line("74", "0000:3b:00"))
			n.passes()
			n.write("cleared", fmt.Sprintf(content, n.delivered()[0].ID))
			if name == "writable by others" {
				if err := os.Chmod(n.path("cleared"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			n.passes()
			n.boot("boot-2")
			n.passes()
			n.wait(time.Hour)
			if got := n.lastRecovery(); got != "" {
				t.Errorf("recovery %s", got)
			}
		})
	}
}

// TestAReplacedGPUTakesItsFaultsWithIt: once the metadata file lists another GPU
// in its place, and the old one nowhere.
func TestAReplacedGPUTakesItsFaultsWithIt(t *testing.T) {
	const other = "GPU-22222222-2222-2222-2222-222222222222"
	file := func(gpus ...string) string {
		var list []string
		for _, gpu := range gpus {
			uuid, pci, _ := strings.Cut(gpu, "@")
			list = append(list, fmt.Sprintf(`{"gpu_id":0,"uuid":%q,"pci_address":%q}`, uuid, pci))
		}
		return `{"gpus":[` + strings.Join(list, ",") + `]}`
	}
	for name, c := range map[string]struct {
		file string
		want string
	}{
		"another in its place":        {file(other + "@0000:3b:00.0"), "74 | healthy | GPU_UUID=" + gpu0},
		"moved to another place":      {file(other+"@0000:3b:00.0", gpu0+"@0000:5e:00.0"), ""},
		"not listed, its place empty": {file(other + "@0000:5e:00.0"), ""},
		"file without GPUs":           {file(), ""},
		"broken file":                 {"{", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.start()
			n.log(line("74", "0000:3b:00"))
			n.passes()
			n.boot("boot-2")
			n.write("gpu_metadata.json", c.file)
			n.restart()
			n.passes()
			if got := n.lastRecovery(); got != c.want {
				t.Errorf("recovery %q, want %q", got, c.want)
			}
			n.wait(2 * time.Minute)
			if got := n.lastRecovery(); (got == allHealthy) != (c.want != "") {
				t.Errorf("after settling: %q", got)
			}
		})
	}
}
