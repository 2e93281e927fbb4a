package fault_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

func event(healthy bool, codes []string, entities ...string) record.Event {
	e := record.Event{Agent: "a", ComponentClass: "GPU", CheckName: "c", NodeName: "n", IsHealthy: healthy, ErrorCode: codes}
	for i := 0; i < len(entities); i += 2 {
		e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: entities[i], EntityValue: entities[i+1]})
	}
	return e
}

func keys(e record.Event) []string {
	var out []string
	for _, x := range fault.Entries(e) {
		out = append(out, x.Key)
	}
	return out
}

func TestEntries(t *testing.T) {
	tests := map[string]struct {
		event record.Event
		want  []string
	}{
		"no entity is the check as a whole": {event(false, []string{"1"}), []string{"a|GPU|c|n|||1"}},
		"names of one device are one entry": {
			event(false, []string{"79"}, "PCI", "0000:3B:00", "GPU_UUID", "GPU-1", "GPU", "3"),
			[]string{"a|GPU|c|n|GPU_UUID:GPU-1||79"},
		},
		"two devices, two codes": {
			event(false, []string{"1", "2"}, "PCI", "0", "GPU_UUID", "GPU-1", "PCI", "1", "GPU_UUID", "GPU-2"),
			[]string{"a|GPU|c|n|GPU_UUID:GPU-1||1", "a|GPU|c|n|GPU_UUID:GPU-1||2", "a|GPU|c|n|GPU_UUID:GPU-2||1", "a|GPU|c|n|GPU_UUID:GPU-2||2"},
		},
		"an irregular listing is not paired": {
			event(false, nil, "GPU", "0", "GPU", "1", "GPU_UUID", "GPU-1"),
			[]string{"a|GPU|c|n|GPU:0||", "a|GPU|c|n|GPU:1||", "a|GPU|c|n|GPU_UUID:GPU-1||"},
		},
		"sub-units narrow": {
			event(false, []string{"13"}, "GPU_UUID", "GPU-1", "TPC", "2", "GPC", "1"),
			[]string{"a|GPU|c|n|GPU_UUID:GPU-1|GPC:1/TPC:2|13"},
		},
		"registers are no things": {
			event(false, []string{"74"}, "PCI", "0000:3b:00", "GPU_UUID", "GPU-1", "NVLINK", "2", "REG0", "00000000000000010000000000000000", "REG6", "0"),
			[]string{"a|GPU|c|n|GPU_UUID:GPU-1|NVLINK:2|74"},
		},
		"other things stand for themselves": {
			event(false, nil, "NIC", "mlx5_0", "NIC", "mlx5_1"),
			[]string{"a|GPU|c|n|NIC:mlx5_0||", "a|GPU|c|n|NIC:mlx5_1||"},
		},
		"a port narrows a NIC": {
			event(false, nil, "NIC", "mlx5_0", "NICPort", "1"), []string{"a|GPU|c|n|NIC:mlx5_0|NICPort:1|"},
		},
		"unknown types name one thing together": {
			event(false, []string{"1"}, "Switch", "leaf-1", "Port", "7"), []string{"a|GPU|c|n|Switch:leaf-1/Port:7||1"},
		},
		"two things of unknown types": {
			event(false, nil, "Switch", "leaf-1", "Port", "7", "Switch", "leaf-1", "Port", "8"),
			[]string{"a|GPU|c|n|Switch:leaf-1/Port:7||", "a|GPU|c|n|Switch:leaf-1/Port:8||"},
		},
		"unknown types that are not paired": {
			event(false, nil, "Switch", "leaf-1", "Port", "7", "Port", "8"),
			[]string{"a|GPU|c|n|Switch:leaf-1||", "a|GPU|c|n|Port:7||", "a|GPU|c|n|Port:8||"},
		},
		"a device and a thing beside it": {
			event(false, nil, "PCI", "0000:3B:00", "NVSWITCH", "3", "NVLINK", "5"),
			[]string{"a|GPU|c|n|PCI:0000:3b:00|NVLINK:5|", "a|GPU|c|n|NVSWITCH:3|NVLINK:5|"},
		},
		"128 bytes of sub-units are written out": {
			event(false, nil, "GPU", "0", "NVLINK", strings.Repeat("3", 121)),
			[]string{"a|GPU|c|n|GPU:0|NVLINK:" + strings.Repeat("3", 121) + "|"},
		},
		"more are a hash": {
			event(false, nil, "GPU", "0", "NVLINK", strings.Repeat("3", 122)),
			[]string{"a|GPU|c|n|GPU:0|sha256:831153bb0a7ef7070082a79ed49b10a2|"},
		},
		"a repeated name is one entry":    {event(false, nil, "NIC", "x", "NIC", "x"), []string{"a|GPU|c|n|NIC:x||"}},
		"a separator in a value is coded": {event(false, []string{"a|b"}), []string{"a|GPU|c|n|||a%7Cb"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, keys(tt.event)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClears(t *testing.T) {
	faulty := event(false, []string{"79"}, "PCI", "0000:3b:00", "GPU_UUID", "GPU-1")
	link := event(false, []string{"74"}, "GPU_UUID", "GPU-1", "NVLINK", "3")
	registers := event(false, []string{"74"}, "GPU_UUID", "GPU-1", "NVLINK", "3", "REG0", "1", "REG1", "0")
	other := event(true, nil)
	other.Agent = "b"
	port := event(false, nil, "NIC", "mlx5_0", "NICPort", "1")
	leaf := event(false, nil, "Switch", "leaf-1", "Port", "7", "Lane", "2")
	links := event(false, []string{"74"}, "GPU_UUID", "GPU-1", "NVLINK", "3", "NVLINK", "4")
	unit := event(false, []string{"13"}, "GPU_UUID", "GPU-1", "GPC", "1", "TPC", "2")
	tests := map[string]struct {
		recovery, faulty record.Event
		want             bool
	}{
		"everything":                  {event(true, nil), faulty, true},
		"the code":                    {event(true, []string{"79"}), faulty, true},
		"another code":                {event(true, []string{"48"}), faulty, false},
		"any name of the device":      {event(true, nil, "PCI", "0000:3B:00"), faulty, true},
		"another device":              {event(true, nil, "GPU_UUID", "GPU-2"), faulty, false},
		"a narrower sub-unit":         {event(true, nil, "GPU_UUID", "GPU-1", "NVLINK", "3"), faulty, false},
		"the same sub-unit":           {event(true, nil, "GPU_UUID", "GPU-1", "NVLINK", "3"), link, true},
		"the whole device":            {event(true, nil, "GPU_UUID", "GPU-1"), link, true},
		"another sub-unit":            {event(true, nil, "GPU_UUID", "GPU-1", "NVLINK", "4"), link, false},
		"another agent":               {other, faulty, false},
		"a fault clears nothing":      {event(false, nil), faulty, false},
		"a sub-unit without a device": {event(true, nil, "NVLINK", "3"), link, false},
		"a device with registers":     {event(true, nil, "GPU_UUID", "GPU-1"), registers, true},
		"registers alone":             {event(true, nil, "REG0", "1"), registers, false},
		"registers, of no device":     {event(true, nil, "REG0", "1"), event(false, nil), false},

		"the GPU of a partition":           {event(true, nil, "GPU_UUID", "GPU-1"), event(false, nil, "GPU_UUID", "GPU-1", "GPU_INSTANCE", "5"), true},
		"another partition of the GPU":     {event(true, nil, "GPU_UUID", "GPU-1", "GPU_INSTANCE", "6"), event(false, nil, "GPU_UUID", "GPU-1", "GPU_INSTANCE", "5"), false},
		"another port of the NIC":          {event(true, nil, "NIC", "mlx5_0", "NICPort", "2"), port, false},
		"the port of another NIC":          {event(true, nil, "NIC", "mlx5_1", "NICPort", "1"), port, false},
		"the port of the NIC":              {event(true, nil, "NICPort", "1", "NIC", "mlx5_0"), port, true},
		"the whole NIC":                    {event(true, nil, "NIC", "mlx5_0"), port, true},
		"a port, no NIC":                   {event(true, nil, "NICPort", "1"), port, false},
		"only a sub-unit was named":        {event(true, nil, "NICPort", "1"), event(false, nil, "NICPort", "1"), true},
		"only another sub-unit":            {event(true, nil, "NICPort", "2"), event(false, nil, "NICPort", "1"), false},
		"one of the sub-units":             {event(true, nil, "GPU_UUID", "GPU-1", "NVLINK", "3"), links, false},
		"all sub-units":                    {event(true, nil, "GPU_UUID", "GPU-1", "NVLINK", "4", "NVLINK", "3"), links, true},
		"the wider sub-unit":               {event(true, nil, "GPU_UUID", "GPU-1", "GPC", "1"), unit, true},
		"all names of a thing":             {event(true, nil, "Lane", "2", "Switch", "leaf-1", "Port", "7"), leaf, true},
		"its widest name":                  {event(true, nil, "Switch", "leaf-1"), leaf, true},
		"its two widest names":             {event(true, nil, "Switch", "leaf-1", "Port", "7"), leaf, true},
		"a narrow name of it":              {event(true, nil, "Port", "7"), leaf, false},
		"two names, not the widest":        {event(true, nil, "Port", "7", "Lane", "2"), leaf, false},
		"another port of the switch":       {event(true, nil, "Switch", "leaf-1", "Port", "8", "Lane", "2"), leaf, false},
		"the port of another switch":       {event(true, nil, "Switch", "leaf-2", "Port", "7", "Lane", "2"), leaf, false},
		"narrower than the fault":          {event(true, nil, "Switch", "leaf-1", "Port", "7"), event(false, nil, "Switch", "leaf-1"), false},
		"names that are not paired":        {event(true, nil, "Switch", "leaf-1", "Port", "9", "Port", "10"), leaf, false},
		"the same that are not paired":     {event(true, nil, "S", "1", "P", "7", "P", "8"), event(false, nil, "S", "1", "P", "7", "P", "8"), true},
		"among several things":             {event(true, nil, "Switch", "a", "Switch", "leaf-1"), leaf, true},
		"a thing beside a device, another": {event(true, nil, "GPU", "0", "Switch", "leaf-2"), leaf, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, e := range fault.Entries(tt.faulty) {
				if got := fault.Clears(tt.recovery, tt.faulty, e); got != tt.want {
					t.Errorf("got %v, want %v for %s", got, tt.want, e.Key)
				}
			}
		})
	}
}

// Keys that were stored when each of these names was an entry of its own still
// match, and are only cleared together.
func TestEntriesOfAStoredRecord(t *testing.T) {
	port := event(false, []string{"5", "6"}, "NIC", "mlx5_0", "NICPort", "1")
	long := event(false, []string{"74"}, "GPU_UUID", "GPU-1", "NVLINK", strings.Repeat("3", 200), "PCI", "0000:3b:00")
	tests := map[string]struct {
		event  record.Event
		stored []string
		want   []string
	}{
		"as now":         {port, keys(port), keys(port)},
		"not judged yet": {port, nil, keys(port)},
		"in several parts": {port,
			[]string{"a|GPU|c|n|NIC:mlx5_0||5", "a|GPU|c|n|NIC:mlx5_0||6", "a|GPU|c|n|NICPort:1||5", "a|GPU|c|n|NICPort:1||6"},
			[]string{keys(port)[0], keys(port)[1], keys(port)[0], keys(port)[1]}},
		"written out":    {long, []string{"a|GPU|c|n|GPU_UUID:GPU-1|NVLINK:" + strings.Repeat("3", 200) + "|74"}, keys(long)},
		"some other key": {port, []string{"x", "y", "z"}, []string{keys(port)[0], keys(port)[1], "z"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := record.Record{Event: tt.event}
			for _, k := range tt.stored {
				r.Status.Faults = append(r.Status.Faults, record.Fault{Key: k})
			}
			var got []string
			for _, e := range fault.EntriesOf(r) {
				got = append(got, e.Key)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Size is what the names of all entries take, and grows with the event, not
// with its entries.
func TestSize(t *testing.T) {
	for _, e := range []record.Event{
		event(false, nil), event(false, []string{"1", "22"}, "GPU", "0", "GPU", "11", "NVLINK", "3"),
		event(false, []string{"1"}, "Switch", "a", "Port", "7", "Switch", "b", "Port", "8"),
	} {
		var want int64
		for _, x := range fault.Entries(e) {
			want += int64(len("a|GPU|c|n|||") + len(x.Code))
			for _, n := range append(x.Names, x.Sub...) {
				want += int64(len(n)) + 1
			}
		}
		if got := fault.Size(e); got < want || got > want+int64(len(fault.Entries(e))) {
			t.Errorf("size %d of %v, want %d", got, e.EntitiesImpacted, want)
		}
	}
}

func TestCompare(t *testing.T) {
	type id = record.NodeIdentity
	const (
		zeros = "00000000-0000-0000-0000-000000000000"
		effs  = "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"
		board = "03000200-0400-0500-0006-000700080009"
	)
	tests := []struct {
		a, b id
		want fault.Sameness
	}{
		{id{ProviderID: "p", UID: "1"}, id{ProviderID: "p", UID: "2"}, fault.SameMachine},
		{id{ProviderID: "p", UID: "1"}, id{ProviderID: "q", UID: "1"}, fault.AnotherMachine},
		{id{SystemUUID: "s", UID: "1"}, id{ProviderID: "p", SystemUUID: "s", UID: "2"}, fault.SameMachine},
		{id{SystemUUID: "s"}, id{SystemUUID: "t"}, fault.AnotherMachine},
		{id{UID: "1"}, id{UID: "2", ProviderID: "p"}, fault.AnotherMachine},
		{id{UID: "1"}, id{UID: "1"}, fault.SameMachine},
		{id{}, id{UID: "1"}, fault.Undecidable},
		{id{ProviderID: "p"}, id{SystemUUID: "s"}, fault.Undecidable},
		{id{SystemUUID: zeros, UID: "1"}, id{SystemUUID: zeros, UID: "2"}, fault.AnotherMachine},
		{id{SystemUUID: zeros, UID: "1"}, id{SystemUUID: zeros, UID: "1"}, fault.SameMachine},
		{id{SystemUUID: zeros}, id{SystemUUID: zeros}, fault.Undecidable},
		{id{SystemUUID: effs, UID: "1"}, id{SystemUUID: effs, UID: "2"}, fault.AnotherMachine},
		{id{SystemUUID: board, UID: "1"}, id{SystemUUID: board, UID: "2"}, fault.AnotherMachine},
		{id{SystemUUID: "Not Settable", UID: "1"}, id{SystemUUID: "Not Settable", UID: "2"}, fault.AnotherMachine},
		{id{ProviderID: "p", SystemUUID: zeros}, id{ProviderID: "p", SystemUUID: board}, fault.SameMachine},
	}
	if a, b := fault.Machine(id{SystemUUID: zeros, UID: "1"}), fault.Machine(id{SystemUUID: zeros, UID: "2"}); a == b {
		t.Errorf("two machines are both %q", a)
	}
	for _, tt := range tests {
		if got := fault.Compare(tt.a, tt.b); got != tt.want {
			t.Errorf("Compare(%+v, %+v) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestOf: the machine that the connector saw comes before the one of the verdict.
func TestOf(t *testing.T) {
	seen, evaluated := record.NodeIdentity{UID: "seen"}, record.NodeIdentity{UID: "judged"}
	for name, tt := range map[string]struct {
		node    record.NodeIdentity
		verdict *record.Verdict
		want    record.NodeIdentity
	}{
		"seen":            {seen, nil, seen},
		"seen and judged": {seen, &record.Verdict{Machine: &evaluated}, seen},
		"judged":          {record.NodeIdentity{BootID: "b"}, &record.Verdict{Machine: &evaluated}, evaluated},
		"not told":        {record.NodeIdentity{BootID: "b"}, &record.Verdict{}, record.NodeIdentity{BootID: "b"}},
		"neither":         {record.NodeIdentity{BootID: "b"}, nil, record.NodeIdentity{BootID: "b"}},
	} {
		if got := fault.Of(record.Record{Node: tt.node, Status: record.Status{QuarantineVerdict: tt.verdict}}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func at(seq uint64, epoch, boot string, appended int64) record.Record {
	return record.Record{
		Seq: seq, SeqEpoch: epoch, Append: appended, Node: record.NodeIdentity{ProviderID: "p"},
		Event: record.Event{Agent: "a", Metadata: map[string]string{record.MetadataBootID: boot, record.MetadataSeqRuns: "x"}},
	}
}

func TestBefore(t *testing.T) {
	if !fault.Before(at(1, "e", "", 9), at(2, "e", "", 1)) {
		t.Error("within an epoch the counter decides")
	}
	if fault.Before(at(1, "e", "", 9), at(2, "f", "", 1)) {
		t.Error("across epochs the append order decides")
	}
	old := run(at(9, "e", "", 1), "")
	if fault.Before(run(at(1, "e", "", 9), ""), old) {
		t.Error("the append order decides for a publisher that names no runs: its counter may have begun anew")
	}
	other := at(2, "e", "", 1)
	other.Node.ProviderID = "q"
	if fault.Before(at(1, "e", "", 9), other) {
		t.Error("across machines the append order decides")
	}
}

// run gives a record the run of its counter and those before it.
func run(r record.Record, runs string) record.Record {
	r.Event.Metadata = map[string]string{record.MetadataBootID: r.Event.BootID(), record.MetadataSeqRuns: runs}
	return r
}

func TestOrderAcrossRuns(t *testing.T) {
	const earlier, later, unknown = "earlier", "later", "unknown"
	tests := map[string]struct {
		a, b string // runs; a has the higher number
		want string // a is
	}{
		"one run":                          {"x w", "x w", later},
		"the next run":                     {"x w", "y x w", earlier},
		"one before it":                    {"y x w", "x w", later},
		"some runs later":                  {"x", "z y x", earlier},
		"a disk restored between":          {"y x", "z x", unknown},
		"runs that the list holds no more": {"a", "z y x", unknown},
		"a run without name, and the next": {"", "x -", earlier},
		"a run without name, after others": {"x", "", unknown},
		"two without name":                 {"", "", unknown},
		"a name is not a part of another":  {"x", "y xx x1", unknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for i, stored := range []int64{1, 9} {
				a, b := run(at(7, "e", "", stored), tt.a), run(at(6, "e", "", 5), tt.b)
				want := tt.want == earlier || tt.want == unknown && i == 0
				if fault.Before(a, b) != want || fault.Before(b, a) == want {
					t.Errorf("stored at %d and 5: before %t, the other way %t", stored, fault.Before(a, b), fault.Before(b, a))
				}
				if fault.Follows(a, b) != (tt.want == earlier) || fault.Follows(b, a) != (tt.want == later) {
					t.Errorf("follows %t, the other way %t", fault.Follows(a, b), fault.Follows(b, a))
				}
			}
		})
	}
}

// TestInOrderAcrossRuns: as the runs went, whatever their numbers are.
func TestInOrderAcrossRuns(t *testing.T) {
	named := func(id string, seq uint64, stored int64, runs string) record.Record {
		r := run(at(seq, "e", "", stored), runs)
		r.ID = id
		return r
	}
	records := []record.Record{
		named("second", 3, 1, "y x"), named("kept", 1, 2, "x"), named("lost", 9, 3, "l x"), named("first", 2, 4, "y x"), named("third", 4, 5, "z y x"),
	}
	var got []string
	for _, r := range fault.InOrder(records) {
		got = append(got, r.ID)
	}
	if want := []string{"kept", "first", "second", "lost", "third"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPast(t *testing.T) {
	evaluated := at(3, "e", "b1", 1)
	evaluated.Status.Session, evaluated.Status.QuarantineVerdict = "s", &record.Verdict{NodeBootID: "b1"}
	repaired := at(1, "e", "b1", 1)
	repaired.Status.Remediation = &record.Remediation{Attempts: []record.Attempt{{ReplacedBootID: "b1"}}}
	accepted := func(boot, under, machine string) record.Record {
		r := at(5, "e", boot, 1)
		r.Node = record.NodeIdentity{ProviderID: machine, BootID: under}
		return r
	}
	tests := map[string]struct {
		known            []record.Record
		session, current string
		r                record.Record
		want             bool
	}{
		"mere difference proves nothing":      {nil, "", "b2", at(5, "e", "b1", 1), false},
		"no boot id":                          {[]record.Record{repaired}, "", "b2", at(5, "e", "", 1), false},
		"a repair replaced it":                {[]record.Record{repaired}, "", "b2", at(5, "e", "b1", 1), true},
		"a higher seq carries another boot":   {[]record.Record{at(6, "e", "b2", 1)}, "", "", at(5, "e", "b1", 1), true},
		"a lower seq carries another boot":    {[]record.Record{at(4, "e", "b0", 1)}, "", "", at(5, "e", "b1", 1), false},
		"another epoch proves nothing":        {[]record.Record{at(6, "f", "b2", 1)}, "", "", at(5, "e", "b1", 1), false},
		"a later run carries another boot":    {[]record.Record{run(at(2, "e", "b2", 1), "y x")}, "", "", run(at(5, "e", "b1", 1), "x"), true},
		"an earlier run carries another boot": {[]record.Record{run(at(9, "e", "b0", 1), "x")}, "", "", run(at(5, "e", "b1", 1), "y x"), false},
		"a run that was lost proves nothing":  {[]record.Record{run(at(9, "e", "b2", 1), "z x")}, "", "", run(at(5, "e", "b1", 1), "y x"), false},
		"the Node reported it, now another":   {[]record.Record{evaluated}, "s", "b2", at(5, "e", "b1", 1), true},
		"the Node still reports it":           {[]record.Record{evaluated}, "s", "b1", at(5, "e", "b1", 1), false},
		"the Node reported it, now unknown":   {[]record.Record{evaluated}, "s", "", at(5, "e", "b1", 1), false},
		"it was reported in another session":  {[]record.Record{evaluated}, "t", "b2", at(5, "e", "b1", 1), false},
		"accepted under it, now another":      {nil, "", "b2", accepted("b1", "b1", "p"), true},
		"accepted under it, which goes on":    {nil, "", "b1", accepted("b1", "b1", "p"), false},
		"accepted under it, now unknown":      {nil, "", "", accepted("b1", "b1", "p"), false},
		"accepted before the Node told of it": {nil, "", "b0", accepted("b1", "b0", "p"), false},
		"another event was accepted under it": {[]record.Record{accepted("", "b1", "p")}, "", "b2", at(5, "e", "b1", 1), true},
		"one of another machine was":          {[]record.Record{accepted("", "b1", "q")}, "", "b2", at(5, "e", "b1", 1), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := fault.BootsOf(tt.known, tt.session, tt.current).Past(tt.r); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRank(t *testing.T) {
	order := []record.Action{record.ActionComponentReset, record.ActionRestartVM, record.ActionReplaceVM}
	for i := 1; i < len(order); i++ {
		if fault.Rank(order[i-1]) >= fault.Rank(order[i]) {
			t.Errorf("%s does not rank below %s", order[i-1], order[i])
		}
	}
	for i, cured := range []bool{true, true, false} {
		if fault.CuredByReboot(order[i]) != cured {
			t.Errorf("a reboot cures %s: %t", order[i], !cured)
		}
	}
	if fault.Rank(record.ActionRestartVM) != fault.Rank(record.ActionRestartBM) {
		t.Error("RESTART_VM and RESTART_BM rank differently")
	}
	for _, a := range []record.Action{record.ActionContactSupport, record.ActionRunFieldDiag, record.ActionUnknown, "SOMETHING"} {
		if !fault.NeedsHuman(a) || fault.CuredByReboot(a) {
			t.Errorf("%s is a person's", a)
		}
	}
	if fault.NeedsHuman(record.ActionNone) {
		t.Error("NONE needs nobody")
	}
}
