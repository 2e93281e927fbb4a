package xid

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// published is the vendor's table by bucket, written down again for the test in
// its own form: every code from 1 to 178 stands in exactly one line.
var published = []struct {
	buckets string // any of these names
	codes   string
	action  record.Action
	fatal   bool
	cures   bool
	policy  Policy
}{
	{"CONTACT_SUPPORT", "1..7 9 10 12 15..24 26..30 33..36 42 47 49..53 55..59 61 65 73 81 87 90 91 111..118 122..125 138 142",
		record.ActionContactSupport, true, false, ByBucket},
	{"RESTART_APP", "8 11 13 25 31 32 39..41 60 68..72 75..77 80 82..86 88 89 94 96..105 126..135 139",
		record.ActionNone, false, true, ByBucket},
	{"IGNORE", "14 37 38 43 44 63 66 67 92 93 106..108 121 137 141 152 153 157 160 161",
		record.ActionNone, false, true, ByBucket},
	{"WORKFLOW_XID_45", "45", record.ActionNone, false, true, ByBucket},
	{"RESET_GPU WORKFLOW_XID_48", "46 48 62 64 95 109 110 119 120 136 140 143 155 156 158",
		record.ActionComponentReset, true, true, ByBucket},
	{"RESTART_BM", "79", record.ActionRestartBM, true, true, ByBucket},
	{"RESTART_VM", "151", record.ActionRestartVM, true, true, ByBucket},
	{"CHECK_MECHANICALS", "54", record.ActionContactSupport, true, false, UnmappedBucket},
	{"WORKFLOW_NVLINK_ERR", "74", record.ActionContactSupport, true, false, UnmappedBucket},
	{"UPDATE_SWFW", "78", record.ActionContactSupport, true, false, UnmappedBucket},
	{"CHECK_UVM", "159", record.ActionContactSupport, true, false, UnmappedBucket},
	{"WORKFLOW_NVLINK5_ERR", "144..150", record.ActionContactSupport, true, false, NeedsDecode},
	{"XID_154_EVAL", "154", record.ActionContactSupport, true, false, Undecided},
	{"", "162", record.ActionNone, false, true, RecoveryNotice},
	{"", "163..178", record.ActionContactSupport, false, true, BlankBucket},
}

func TestCatalogueIsThePublishedTable(t *testing.T) {
	seen := map[int]bool{}
	for _, p := range published {
		for _, code := range expand(t, p.codes) {
			if seen[code] {
				t.Errorf("xid %d stands twice in the test's table", code)
			}
			seen[code] = true
			row, ok := Builtin[code]
			if !ok {
				t.Errorf("xid %d is not in the catalogue", code)
				continue
			}
			if !strings.Contains(" "+p.buckets+" ", " "+row.Bucket+" ") || (row.Bucket == "") != (p.buckets == "") {
				t.Errorf("xid %d: bucket %q, want one of %q", code, row.Bucket, p.buckets)
			}
			want := Evaluation{p.action, p.fatal, p.cures, p.policy}
			if got := Builtin.Evaluate(Fault{Code: code}, ""); got != want {
				t.Errorf("xid %d: judged %+v, want %+v of the published table; an action that is not the bucket's has a name of its own in column policy and its reason in the note, and a row here", code, got, want)
			}
		}
	}
	if len(seen) != 178 || len(Builtin) != 178 {
		t.Errorf("the test knows %d codes, the catalogue %d; want 178", len(seen), len(Builtin))
	}
}

func TestKnownBucketsAreFatalUnlessTheActionIsNone(t *testing.T) {
	for code, row := range catalogue {
		if row.Bucket == "" || row.Policy == ActionInText {
			continue
		}
		if row.Fatal != (row.Action != record.ActionNone) {
			t.Errorf("xid %d: action %s, fatal %t", code, row.Action, row.Fatal)
		}
		if row.Fatal && row.RebootCures != Cures(row.Action) {
			t.Errorf("xid %d: action %s, reboot cures %t", code, row.Action, row.RebootCures)
		}
	}
}

func TestUnclassifiedCodesNeverDisrupt(t *testing.T) {
	for _, code := range []int{0, 179, 999, 1 << 30} {
		want := Evaluation{record.ActionContactSupport, false, true, UnknownCode}
		if got := Builtin.Evaluate(Fault{Code: code}, ""); got != want {
			t.Errorf("xid %d: judged %+v, want %+v", code, got, want)
		}
	}
}

// TestXID154IsReadByItsNumber: the words are those of several drivers.
func TestXID154IsReadByItsNumber(t *testing.T) {
	reset := Evaluation{record.ActionComponentReset, true, true, ActionInText}
	reboot := Evaluation{record.ActionRestartBM, true, true, ActionInText}
	person := Evaluation{record.ActionContactSupport, true, true, ActionInText}
	undecided := Evaluation{record.ActionContactSupport, true, false, Undecided}
	for text, want := range map[string]Evaluation{
		"GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)":                 reset,
		"GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)":                             reset,
		"GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)":                    reset,
		"GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)": reboot,
		"GPU recovery action changed from 0x1 (PF FLR) to 0x2 (OS Reboot)":                        reboot,
		"GPU recovery action changed from 0x1 (PF FLR) to 0x6 (Bus Reset)":                        reboot,
		"GPU recovery action changed from 0x0 (None) to 0x7 (System Reboot)":                      reboot,
		"GPU recovery action changed from 0x0 (None) to 0x2(Reboot)":                              reboot,
		"GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)":               {record.ActionNone, false, true, ActionInText},
		"GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)":                          person,
		"GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)":                person,
		"GPU recovery action changed from 0x0 (None) to 0x8 (None)":                               undecided,
		"GPU recovery action changed from 0x0 (None) to 0x10 (None)":                              undecided,
		"GPU recovery action changed from 0x0 (None) to 0x100000001 (None)":                       undecided,
		"GPU recovery action changed from 0x1 (GPU Reset Required)":                               undecided,
		"GPU recovery action changed from 0x0 (None)":                                             undecided,
		"GPU recovery action changed from 0x0 (None) to 0x":                                       undecided,
		"GPU recovery action changed":                                                             undecided,
		"(None)":                                                                                  undecided,
		")(":                                                                                      undecided,
	} {
		f, ok := Parse("NVRM: Xid (PCI:0000:3b:00): 154, " + text)
		if !ok {
			t.Fatalf("%q was not parsed", text)
		}
		if got := Builtin.Evaluate(f, ""); got != want || f.Withdrawn() != !want.Fatal {
			t.Errorf("%q: judged %+v, withdrawn %t; want %+v", text, got, f.Withdrawn(), want)
		}
	}
	if f, _ := Parse("NVRM: Xid (PCI:0000:3b:00): 79, GPU recovery action changed from 0x1 (x) to 0x0 (None)"); f.Withdrawn() {
		t.Error("another code is taken for an XID 154")
	}
}

func TestGeneratedTablesAreCurrent(t *testing.T) {
	for table, args := range map[string][]string{
		"catalogue_generated.go": {"-in", "catalogue.csv"}, "nvlink5_generated.go": {"-nvlink5", "-in", "nvlink5.csv"},
	} {
		out := filepath.Join(t.TempDir(), "table.go")
		cmd := exec.Command("go", append(append([]string{"run", "./gen"}, args...), "-out", out)...)
		if msg, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("generating: %v\n%s", err, msg)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what go generate makes of its table", table)
		}
	}
}

// expand reads "1..3 7" as 1, 2, 3, 7.
func expand(t *testing.T, list string) []int {
	t.Helper()
	var out []int
	for item := range strings.FieldsSeq(list) {
		first, last, isRange := strings.Cut(item, "..")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		b, err := strconv.Atoi(last)
		if err != nil {
			t.Fatal(err)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out
}
