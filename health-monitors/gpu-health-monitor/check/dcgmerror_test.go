package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// TestTheTable: as many rows as the earlier NVSentinel has, with its actions, and the six
// that it lacks; each states where it comes from.
func TestTheTable(t *testing.T) {
	table, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	counts, ours := map[record.Action]int{}, 0
	for name, row := range table.Rows() {
		if row.Source == "" || row.Name != name || row.FromOperator {
			t.Errorf("%s: %+v", name, row)
		}
		if strings.HasPrefix(row.Source, "ours:") {
			ours++
			continue
		}
		counts[row.Action]++
	}
	for action, want := range map[record.Action]int{
		record.ActionNone: 16, record.ActionComponentReset: 7, record.ActionRestartVM: 25, record.ActionRestartBM: 2, record.ActionContactSupport: 84,
	} {
		if counts[action] != want {
			t.Errorf("%d rows say %s, want %d", counts[action], action, want)
		}
	}
	if ours != 6 {
		t.Errorf("%d rows are ours, want 6", ours)
	}
}

func TestOf(t *testing.T) {
	table, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[uint]string{
		4: "DCGM_FR_VOLATILE_DBE_DETECTED COMPONENT_RESET", 10: "DCGM_FR_CLOCKS_EVENT_THERMAL NONE", 80: "DCGM_FR_ROW_REMAP_FAILURE CONTACT_SUPPORT",
		120: "DCGM_FR_FALLEN_OFF_BUS RESTART_BM", 131: "DCGM_FR_CONTAINED_ERROR NONE", 132: "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT CONTACT_SUPPORT",
		9999: "DCGM_FR_UNKNOWN CONTACT_SUPPORT",
	} {
		if row := table.Of(number); row.Name+" "+string(row.Action) != want {
			t.Errorf("%d is %+v, want %s", number, row, want)
		}
	}
	for number := uint(1); number <= 134; number++ {
		if number > 1 && table.Of(number).Name == Unknown {
			t.Errorf("%d has no name", number)
		}
	}
}

func TestAFileIsMergedOver(t *testing.T) {
	table, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	merged, err := table.With(strings.NewReader("# of the operator\ndcgm_error_name,recommended_action\nDCGM_FR_NVLINK_DOWN, NONE\nDCGM_FR_NEW_IN_5,REBOOT_NODE\n"))
	if err != nil {
		t.Fatal(err)
	}
	if row := merged.Of(14); row.Action != record.ActionNone || !row.FromOperator {
		t.Errorf("row 14 is %+v", row)
	}
	if row := merged.Named("DCGM_FR_NEW_IN_5"); row.Action != record.ActionRestartVM {
		t.Errorf("the new row is %+v", row)
	}
	if row := merged.Of(4); row.FromOperator || row.Action != record.ActionComponentReset {
		t.Errorf("row 4 is %+v", row)
	}
	if row := table.Of(14); row.FromOperator {
		t.Error("the built-in table was changed")
	}
	if quoted, err := table.With(strings.NewReader("DCGM_FR_NVLINK_DOWN, \"NONE\"\n")); err != nil || quoted.Of(14).Action != record.ActionNone {
		t.Errorf("a quoted value: %+v, %v", quoted.Of(14), err)
	}
	if _, err := table.With(strings.NewReader("name,action\nDCGM_FR_A,NONE\nx,NONE\n")); err == nil || !strings.Contains(err.Error(), "row 3: ") {
		t.Errorf("a bad third row: %v", err)
	}
	for _, bad := range []string{"dcgm_FR_x,NONE", "DCGM_FR_NVLINK_DOWN,REBOOT", "NVLINK_DOWN,NONE", "DCGM_FR_NVLINK_DOWN", "\"", "DCGM_FR_A,NONE\nx,NONE\n"} {
		if _, err := table.With(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		path, err string
		want      record.Action // of DCGM_FR_NVLINK_DOWN
	}{
		{"", "", record.ActionRestartVM},
		{file("good", "DCGM_FR_NVLINK_DOWN,NONE\n"), "", record.ActionNone},
		{file("bad", "X,NONE\n"), "reading the error mapping " + filepath.Join(dir, "bad") + ": row 1: ", ""},
		{filepath.Join(dir, "none"), "opening the error mapping: open " + filepath.Join(dir, "none"), ""},
	} {
		table, err := Load(tt.path)
		if tt.err == "" && (err != nil || table.Of(14).Action != tt.want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %+v, %v", tt.path, table.Of(14), err)
		}
	}
}
