package sxid

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/internal/mutate"
	"github.com/nvidia/nvsentinel/health-monitors/location"
	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Fault{
		"nvidia-nvswitch3: SXid (PCI:0000:C1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)": {28006, "28006", "3", "0000:c1:00", "46", false, false},
		"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 030 LTSSM Fault Up":                   {20034, "20034", "0", "0000:c1:00", "30", true, false},
		"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003, Fatal":                                            {10003, "10003", "0", "0000:c1:00", "", true, false},
		"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 99999999999999, Fatal, Link 1 x":                         {0, "99999999999999", "0", "0000:c1:00", "1", true, false},
		"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 20012, Correctable, Link 12 NVLink TLC x":                {20012, "20012", "2", "0000:c1:00", "12", false, false},
		"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 10006, TSENSE OVERT Threshold reached. Shutting Down":    {10006, "10006", "2", "0000:c1:00", "", false, true},
		"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 10004, PMGR OVERT Threshold reached. Shutting Down":      {10004, "10004", "2", "0000:c1:00", "", false, true},
		"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 26006, SOE HALTED":                                       {26006, "26006", "2", "0000:c1:00", "", false, true},
		"nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 28001, OSFP Thermal Warn Activated":                      {28001, "28001", "2", "0000:c1:00", "", false, true},
	} {
		f, ok := Builtin.Parse(line)
		if diff := cmp.Diff(want, f); !ok || diff != "" {
			t.Errorf("%q: ok %t, fault (-want +got):\n%s", line, ok, diff)
		}
	}
	for _, line := range []string{
		"", "nvidia-nvswitch", "nvidia-nvswitch3: open (major=510)", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00000001, 0x00000000}", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): x, Fatal",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 26006, Severity 0 Engine instance 46", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 26006, Data {0x00000001",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 23001, of a code that has a severity", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 26006, ",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Fatality", "NVRM: Xid (PCI:0000:c1:00): 74",
	} {
		if f, ok := Builtin.Parse(line); ok {
			t.Errorf("%q was read as %+v", line, f)
		}
	}
}

func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		fatal bool
		want  Evaluation
	}{
		{"fatal", 20034, true, Evaluation{record.ActionRestartVM, true, true, ByClass}},
		{"fatal elsewhere", 20034, false, Evaluation{record.ActionNone, false, true, ByClass}},
		{"always fatal", 23001, true, Evaluation{record.ActionRestartBM, true, true, ByClass}},
		{"always fatal, says the guide alone", 23001, false, Evaluation{record.ActionContactSupport, false, true, SeverityInLine}},
		{"not fatal", 11012, false, Evaluation{record.ActionNone, false, true, ByClass}},
		{"not fatal, says the guide alone", 11012, true, Evaluation{record.ActionContactSupport, true, false, SeverityInLine}},
		{"thermal", 10004, false, Evaluation{record.ActionNone, false, true, ByClass}},
		{"unknown", 28006, false, Evaluation{record.ActionNone, false, true, UnknownCode}},
		{"unknown and fatal", 28006, true, Evaluation{record.ActionContactSupport, true, false, UnknownCode}},
		{"no number", 0, true, Evaluation{record.ActionContactSupport, true, false, UnknownCode}},
	} {
		if got := Builtin.Evaluate(Fault{Code: c.code, Fatal: c.fatal}); got != c.want {
			t.Errorf("%s: judged %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestWithoutASeverityTheCatalogueDecides(t *testing.T) {
	for code, want := range map[string]Evaluation{
		"10004": {record.ActionNone, false, true, ByClass}, "28002": {record.ActionNone, false, true, ByClass},
		"10006": {record.ActionContactSupport, true, false, ByClass}, "28005": {record.ActionContactSupport, true, false, ByClass},
		"26006": {record.ActionContactSupport, false, true, ByClass}, "25010": {record.ActionContactSupport, false, true, ByClass},
	} {
		f, ok := Builtin.Parse("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): " + code + ", some text")
		if got := Builtin.Evaluate(f); !ok || got != want {
			t.Errorf("%s: read %t, judged %+v, want %+v", code, ok, got, want)
		}
	}
	f, _ := Builtin.Parse("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 26006, Fatal, Link 1 x")
	if got := Builtin.Evaluate(f); got != (Evaluation{record.ActionContactSupport, true, false, SeverityInLine}) {
		t.Errorf("with a severity: %+v", got)
	}
}

func TestEventNamesSwitchPortAndGPU(t *testing.T) {
	f, _ := Builtin.Parse("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Fatal, Link 46 x")
	gpu := location.Device{UUID: "GPU-1", Index: "5", Chassis: "C9"}
	e := record.FromProto(Builtin.Event(f, gpu, location.Sighting{Node: "n", Boot: "b", Strategy: record.PersistOnly}, "raw"))
	want := record.Event{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsSXIDError", Message: "raw", IsFatal: true,
		RecommendedAction: record.ActionContactSupport, ErrorCode: []string{"28006"}, NodeName: "n", ProcessingStrategy: record.PersistOnly,
		EntitiesImpacted: []record.Entity{
			{EntityType: "NVSWITCH", EntityValue: "3"}, {EntityType: "PCI", EntityValue: "0000:c1:00"}, {EntityType: "NVLINK", EntityValue: "46"},
			{EntityType: "GPU", EntityValue: "5"}, {EntityType: "GPU_UUID", EntityValue: "GPU-1"},
		},
		Metadata:           map[string]string{"bootID": "b", "chassis_serial": "C9", "sxidPolicy": "unknown-code"},
		GeneratedTimestamp: e.GeneratedTimestamp,
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// TestCatalogueIsThePublishedTable holds the classes as the guide's appendix
// lists them, written down again.
func TestCatalogueIsThePublishedTable(t *testing.T) {
	total := 0
	for class, codes := range map[Class]string{
		NonFatal: "11004 11012 11021 11022 11023 12021 12023 12028 15008 15011 19049 19055 19057 19059 19062 19065 19068 19071 19084 20001 20012 22013 24001 24002 24003",
		Fatal: "11001 11009 11013 11018 11019 11020 12001 12002 12022 12024 12025 12026 12027 12030 12031 12032 14017 15001 15006 15009 15010 15012 15013" +
			" 19047 19048 19054 19056 19058 19060 19061 19063 19064 19066 19067 19069 19070 20034 22012 24004 24005 24006 24007",
		AlwaysFatal: "10003 12020 22003 22011 23001 23002 23003 23004 23005 23006 23007 23008 23009 23010 23011 23012 23013 23014 23015 23016 23017",
		Notable:     "10001 10002 10004 10005 28001 28002 28004",
		Bare:        "25010 26001 26002 26003 26004 26005 26006 26007 26008 27001 27002 27003 27004 27005 27006 27007",
		BareFatal:   "10006 28003 28005",
	} {
		for word := range strings.FieldsSeq(codes) {
			f, _ := Builtin.Parse("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): " + word + ", Fatal")
			row, ok := Builtin[f.Code]
			if !ok || row.Class != class || row.Name == "" {
				t.Errorf("sxid %s: %+v, want class %s", word, row, class)
			}
			total++
		}
	}
	if total != len(catalogue) {
		t.Errorf("the test knows %d codes, the catalogue %d", total, len(catalogue))
	}
}

func TestGeneratedTableIsCurrent(t *testing.T) {
	out := filepath.Join(t.TempDir(), "table.go")
	cmd := exec.Command("go", "run", "./gen", "-in", "catalogue.csv", "-out", out)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generating: %v\n%s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("catalogue_generated.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("catalogue_generated.go is not what go generate makes of catalogue.csv")
	}
}

var seeds = []string{
	"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
	"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "nvidia-nvswitch0: SXid (PCI:::): 0, Fatal", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10006, TSENSE OVERT Threshold reached",
}

func checkLine(t *testing.T, raw []byte) {
	f, ok := Builtin.Parse(kernellog.Clean(raw))
	if !ok {
		return
	}
	e := Builtin.Event(f, location.Device{}, location.Sighting{Node: "n", Strategy: record.Process}, "m")
	if _, err := proto.Marshal(e); err != nil || f.Number == "" || f.PCI == "" || f.Switch == "" || e.IsFatal && !f.Fatal && !f.Bare {
		t.Errorf("event %v of fault %+v, error %v", e, f, err)
	}
}

func TestDamagedLines(t *testing.T) { mutate.Each(t, 3000, seeds, checkLine) }

func FuzzLine(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkLine)
}

func TestClasses(t *testing.T) {
	for class, serious := range map[Class]bool{NonFatal: false, Fatal: true, AlwaysFatal: true, Notable: false, Bare: false, BareFatal: true} {
		if !class.Known() || class.Serious() != serious {
			t.Errorf("%s: known %t, serious %t", class, class.Known(), class.Serious())
		}
	}
	if Class("other").Known() || Class("").Serious() {
		t.Error("a class that is none")
	}
}
