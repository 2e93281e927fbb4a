package fallenoff

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

const (
	first  = "NVRM: The NVIDIA GPU 0000:18:00.0"
	second = "NVRM: (PCI ID: 10de:2330) installed in this system has"
	third  = "NVRM: fallen off the bus and is not responding to commands."
)

// read walks over lines and lists what fell; a number of dots is that many lines
// of others.
func read(lines ...string) []string {
	var out []string
	var b Begun
	for _, line := range lines {
		if strings.Trim(line, ".") == "" {
			b = b.Pass(len(line))
			continue
		}
		var fell bool
		if b, fell = b.Read(line); fell {
			out = append(out, b.PCI+" "+b.ID)
			b = Begun{}
		}
	}
	return out
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"one record", []string{first + "\n" + second + "\n" + third}, []string{"0000:18:00.0 10de:2330"}},
		{"line by line", []string{first, second, third}, []string{"0000:18:00.0 10de:2330"}},
		{"with others between", []string{first, "...", second, "NVRM: Xid (PCI:0000:18:00): 79, pid=1", "...", third}, []string{"0000:18:00.0 10de:2330"}},
		{"another order of its parts", []string{first + " (PCI ID: 10DE:2330)", "NVRM: installed in this system has", third}, []string{"0000:18:00.0 10de:2330"}},
		{"without an id", []string{first, third}, []string{"0000:18:00.0 "}},
		{"two GPUs", []string{first, second, third, strings.Replace(first, "18", "3b", 1), second, third}, []string{"0000:18:00.0 10de:2330", "0000:3b:00.0 10de:2330"}},
		{"the second begins before the end of the first", []string{first, strings.Replace(first, "18", "3b", 1), second, third}, []string{"0000:3b:00.0 10de:2330"}},
		{"too far apart", []string{first, strings.Repeat(".", MaxLines), third}, nil},
		{"just near enough", []string{first, strings.Repeat(".", MaxLines-1), third}, []string{"0000:18:00.0 "}},
		{"no beginning", []string{second, third}, nil},
		{"another end", []string{first, "NVRM: (PCI ID: 10de:2330) installed in this system is not supported"}, nil},
		{"the text of XID 79", []string{"NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, read(c.lines...)); diff != "" {
				t.Errorf("fallen (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvent(t *testing.T) {
	b := Begun{PCI: "0000:18:00.0", ID: "10de:2330"}
	e := record.FromProto(Event(b, location.Device{UUID: "GPU-1", Index: "2"}, location.Sighting{Node: "n", Boot: "b", Strategy: record.Process}, "raw"))
	want := record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsGPUFallenOff", Message: "raw", IsFatal: true,
		RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"GPU_FALLEN_OFF_BUS"}, NodeName: "n", ProcessingStrategy: record.Process,
		EntitiesImpacted: []record.Entity{
			{EntityType: "PCI", EntityValue: "0000:18:00"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"}, {EntityType: "GPU", EntityValue: "2"},
		},
		Metadata: map[string]string{"bootID": "b", "pciID": "10de:2330"}, GeneratedTimestamp: e.GeneratedTimestamp,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

var seeds = []string{first + "\n" + second + "\n" + third, first, second, third}

func checkLines(t *testing.T, raw []byte) {
	var b Begun
	for line := range strings.SplitSeq(kernellog.Clean(raw), "\n") {
		var fell bool
		if b, fell = b.Read(line); fell && (b.PCI == "" || b.Left < 0 || !utf8.ValidString(b.PCI+b.ID)) {
			t.Errorf("fell: %+v", b)
		}
	}
}

func TestDamagedLines(t *testing.T) { mutate.Each(t, 2000, seeds, checkLines) }

func FuzzLines(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkLines)
}
