package admission

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

const node = "gpu-7"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// event is a good event, changed by the given functions.
func event(change ...func(*protos.HealthEvent)) *protos.HealthEvent {
	p := &protos.HealthEvent{
		Version: 1, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError",
		IsFatal: true, Message: "NVRM: Xid 79", RecommendedAction: protos.RecommendedAction_RESTART_BM,
		ErrorCode: []string{"79"}, NodeName: node, GeneratedTimestamp: timestamppb.New(noon),
		EntitiesImpacted: []*protos.Entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}},
		Id:               "01958a5c-0000-7000-8000-000000000001",
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestNormaliseRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*protos.HealthEvent)
		field  string
		reason Reason
	}{
		"no agent":                {func(p *protos.HealthEvent) { p.Agent = "" }, "agent", Missing},
		"blank agent":             {func(p *protos.HealthEvent) { p.Agent = " \n" }, "agent", Missing},
		"no check":                {func(p *protos.HealthEvent) { p.CheckName = "" }, "checkName", Missing},
		"no node":                 {func(p *protos.HealthEvent) { p.NodeName = "" }, "nodeName", Missing},
		"foreign node":            {func(p *protos.HealthEvent) { p.NodeName = "gpu-8" }, "nodeName", ForeignNode},
		"long check":              {func(p *protos.HealthEvent) { p.CheckName = strings.Repeat("x", MaxName+1) }, "checkName", TooLong},
		"long class":              {func(p *protos.HealthEvent) { p.ComponentClass = strings.Repeat("x", MaxName+1) }, "componentClass", TooLong},
		"no timestamp":            {func(p *protos.HealthEvent) { p.GeneratedTimestamp = nil }, "generatedTimestamp", Missing},
		"bad nanos":               {func(p *protos.HealthEvent) { p.GeneratedTimestamp.Nanos = -1 }, "generatedTimestamp", Malformed},
		"year 10000":              {func(p *protos.HealthEvent) { p.GeneratedTimestamp.Seconds = 253402300800 }, "generatedTimestamp", Malformed},
		"custom, no name":         {func(p *protos.HealthEvent) { p.RecommendedAction = protos.RecommendedAction_CUSTOM }, "customRecommendedAction", Missing},
		"id is a word":            {func(p *protos.HealthEvent) { p.Id = "seventy-nine" }, "id", Malformed},
		"id is a urn":             {func(p *protos.HealthEvent) { p.Id = "urn:uuid:" + p.Id }, "id", Malformed},
		"id is zero":              {func(p *protos.HealthEvent) { p.Id = "00000000-0000-0000-0000-000000000000" }, "id", Malformed},
		"id is derived":           {func(p *protos.HealthEvent) { p.Id = "6f1ed0c5-6c1b-5a54-9d0e-2f6d4f7a3b52" }, "id", Foreseeable},
		"id is a clock's":         {func(p *protos.HealthEvent) { p.Id = "6f1ed0c5-6c1b-1a54-9d0e-2f6d4f7a3b52" }, "id", Foreseeable},
		"id is a v4 that is none": {func(p *protos.HealthEvent) { p.Id = "6f1ed0c5-6c1b-4a54-1d0e-2f6d4f7a3b52" }, "id", Foreseeable},
		"long custom name":        {func(p *protos.HealthEvent) { p.CustomRecommendedAction = strings.Repeat("x", MaxName+1) }, "customRecommendedAction", TooLong},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, refusal := Normalise(event(tc.change), node)
			if refusal == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff([]any{tc.field, tc.reason}, []any{refusal.Field, refusal.Reason}); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNormaliseCuts(t *testing.T) {
	tests := map[string]struct {
		change func(*protos.HealthEvent)
		want   func(*record.Event)
		cuts   []Cut
	}{
		"nothing to cut": {},
		"unknown action": {
			change: func(p *protos.HealthEvent) { p.RecommendedAction = 42 },
			want: func(e *record.Event) {
				e.RecommendedAction = record.ActionUnknown
				e.Metadata = map[string]string{record.MetadataUnknownAction: "42"}
			},
			cuts: []Cut{CutUnknownAction},
		},
		"unknown strategy": {
			change: func(p *protos.HealthEvent) { p.ProcessingStrategy = 9 },
			want: func(e *record.Event) {
				e.ProcessingStrategy = record.PersistOnly
				e.Metadata = map[string]string{record.MetadataUnknownStrategy: "9"}
			},
			cuts: []Cut{CutUnknownStrategy},
		},
		"unknown action beside metadata": {
			change: func(p *protos.HealthEvent) { p.RecommendedAction, p.Metadata = 42, map[string]string{"rack": "r"} },
			want: func(e *record.Event) {
				e.RecommendedAction = record.ActionUnknown
				e.Metadata = map[string]string{record.MetadataUnknownAction: "42", "rack": "r"}
			},
			cuts: []Cut{CutUnknownAction},
		},
		"fields of a newer version": {
			change: func(p *protos.HealthEvent) { p.ProtoReflect().SetUnknown(unread(MaxUnread)) },
			want:   func(e *record.Event) { e.Unread = unread(MaxUnread) },
		},
		"too many of them": {
			change: func(p *protos.HealthEvent) { p.ProtoReflect().SetUnknown(unread(MaxUnread + 1)) },
			cuts:   []Cut{CutUnread},
		},
		"no class": {
			change: func(p *protos.HealthEvent) { p.ComponentClass = "" },
			want:   func(e *record.Event) { e.ComponentClass = "" },
		},
		"turned from the first letter": {
			change: func(p *protos.HealthEvent) { p.Message = "\u202eabc" },
			want:   func(e *record.Event) { e.Message = "\ufffdabc" },
			cuts:   []Cut{CutControl},
		},
		"force and skip": {
			change: func(p *protos.HealthEvent) {
				p.QuarantineOverrides = &protos.BehaviourOverrides{Force: true, Skip: true}
				p.DrainOverrides = &protos.BehaviourOverrides{Skip: true}
			},
			want: func(e *record.Event) {
				e.DrainOverrides = &record.Override{Skip: true}
				e.Metadata = map[string]string{MetadataDroppedOverride: "quarantineOverrides"}
			},
			cuts: []Cut{CutOverride},
		},
		"control characters": {
			change: func(p *protos.HealthEvent) { p.Message = "a\x00b\nc\x7f\xffd" },
			want:   func(e *record.Event) { e.Message = "a\ufffdb c\ufffd\ufffdd" },
			cuts:   []Cut{CutControl},
		},
		"line separators": {
			change: func(p *protos.HealthEvent) { p.Message = "x\"\u2028  nodeName: victim\u2029  force: true\u0085#" },
			want:   func(e *record.Event) { e.Message = "x\"   nodeName: victim   force: true #" },
			cuts:   []Cut{CutControl},
		},
		"turned and marked text": {
			change: func(p *protos.HealthEvent) { p.Message = "a\u202eb\u2066c\u200ed\ufeffe\ufffff" },
			want:   func(e *record.Event) { e.Message = "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf" },
			cuts:   []Cut{CutControl},
		},
		"letters of all kinds stay": {
			change: func(p *protos.HealthEvent) { p.Message = "G\u00e4rtner \u6e29\u5ea6 \U0001f525 a\u200db\u00a0c" },
			want:   func(e *record.Event) { e.Message = "G\u00e4rtner \u6e29\u5ea6 \U0001f525 a\u200db\u00a0c" },
		},
		"long message ends at a rune": {
			change: func(p *protos.HealthEvent) { p.Message = strings.Repeat("x", MaxMessage-1) + "\u00e9" },
			want:   func(e *record.Event) { e.Message = strings.Repeat("x", MaxMessage-1) },
			cuts:   []Cut{CutMessage},
		},
		"what is just not too long": {
			change: func(p *protos.HealthEvent) {
				p.Message, p.ErrorCode = strings.Repeat("x", MaxMessage), []string{strings.Repeat("7", MaxText)}
				for i := range MaxSubUnits {
					p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: "NVLINK", EntityValue: fmt.Sprint(i)})
				}
			},
			want: func(e *record.Event) {
				e.Message, e.ErrorCode = strings.Repeat("x", MaxMessage), []string{strings.Repeat("7", MaxText)}
				for i := range MaxSubUnits {
					e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "NVLINK", EntityValue: fmt.Sprint(i)})
				}
			},
		},
		"random id": {
			change: func(p *protos.HealthEvent) { p.Id = "6f1ed0c5-6c1b-4a54-9d0e-2f6d4f7a3b52" },
			want:   func(e *record.Event) { e.ID = "6f1ed0c5-6c1b-4a54-9d0e-2f6d4f7a3b52" },
		},
		"upper-case id": {
			change: func(p *protos.HealthEvent) { p.Id = strings.ToUpper(p.Id) },
		},
		"long code": {
			change: func(p *protos.HealthEvent) { p.ErrorCode = []string{strings.Repeat("7", MaxText+1)} },
			want:   func(e *record.Event) { e.ErrorCode = []string{strings.Repeat("7", MaxText)} },
			cuts:   []Cut{CutText},
		},
		"metadata keys that become one": {
			change: func(p *protos.HealthEvent) { p.Metadata = map[string]string{"a b": "1", "a\tb": "2"} },
			want:   func(e *record.Event) { e.Metadata = map[string]string{"a b": "2"} },
			cuts:   []Cut{CutControl, CutMetadata},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := record.FromProto(event())
			p := event()
			if tc.change != nil {
				tc.change(p)
			}
			if tc.want != nil {
				tc.want(&want)
			}
			got, cuts, refusal := Normalise(p, node)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.cuts, cuts); diff != "" {
				t.Errorf("cuts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNormaliseBoundsLists(t *testing.T) {
	tests := map[string]struct {
		entities, codes, metadata int
		wantEntities, wantCodes   int
		cuts                      []Cut
	}{
		"at every limit":    {16, 256, 64, 16, 256, nil},
		"entities":          {1025, 1, 0, 1024, 1, []Cut{CutEntities}},
		"codes":             {1, 257, 0, 1, 256, []Cut{CutCodes}},
		"product":           {1000, 10, 0, 409, 10, []Cut{CutPairs}},
		"everything":        {5000, 5000, 100, 16, 256, []Cut{CutEntities, CutCodes, CutPairs, CutMetadata}},
		"entities, no code": {1024, 0, 65, 1024, 0, []Cut{CutMetadata}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := event(func(p *protos.HealthEvent) { p.EntitiesImpacted, p.ErrorCode = nil, nil })
			for i := range tc.entities {
				p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: "GPU", EntityValue: fmt.Sprint(i)})
			}
			for i := range tc.codes {
				p.ErrorCode = append(p.ErrorCode, fmt.Sprint(i))
			}
			p.Metadata = map[string]string{}
			for i := range tc.metadata {
				p.Metadata[fmt.Sprintf("k%03d", i)] = "v"
			}
			e, cuts, refusal := Normalise(p, node)
			if refusal != nil {
				t.Fatal(refusal)
			}
			want := []int{tc.wantEntities, tc.wantCodes, min(tc.metadata, MaxMetadata)}
			if diff := cmp.Diff(want, []int{len(e.EntitiesImpacted), len(e.ErrorCode), len(e.Metadata)}); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.cuts, cuts); diff != "" {
				t.Errorf("cuts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFaultsOfOneEventAreBounded goes to every bound of an event at once: the size of
// the faults that are made of it has a bound of its own.
func TestFaultsOfOneEventAreBounded(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("%0*d", MaxText, i) }
	// kinds are the types of the entities, in turn.
	for name, kinds := range map[string][]string{
		"devices":             {"GPU_UUID"},
		"devices x sub-units": {"GPU_UUID", "NVLINK"},
		"sub-units":           {"SM"},
		"sub-units first":     {"SM", "SM", "SM", "GPU"},
		"things of two names": {"Switch", "Port"},
		"things":              {"NIC"},
		"not paired":          {"GPU", "GPU_UUID", "PCI", "GPU"},
	} {
		for _, codes := range []int{0, 1, 4, 1000} {
			p := event(func(p *protos.HealthEvent) {
				p.EntitiesImpacted, p.ErrorCode = nil, nil
				p.Agent, p.ComponentClass, p.CheckName = long(0)[:MaxName], long(1)[:MaxName], long(2)[:MaxName]
				for i := range 2 * MaxEntities {
					p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: kinds[i%len(kinds)], EntityValue: long(i)})
				}
				for i := range codes {
					p.ErrorCode = append(p.ErrorCode, long(i))
				}
			})
			e, cuts, refusal := Normalise(p, node)
			if refusal != nil {
				t.Fatal(refusal)
			}
			var bytes int64
			entries := fault.Entries(e)
			for _, x := range entries {
				bytes += int64(len(x.Key))
				for _, n := range slices.Concat(x.Names, x.Sub) {
					bytes += int64(len(n))
				}
			}
			if bytes > 2*MaxFaultBytes || len(cuts) == 0 {
				t.Errorf("%s, %d codes: %d entries of %d bytes; cuts %v", name, codes, len(entries), bytes, cuts)
			}
			if len(e.EntitiesImpacted) == 0 || codes > 0 && len(e.ErrorCode) == 0 || len(entries) == 0 {
				t.Errorf("%s, %d codes: %d entities and %d codes are left of the fault", name, codes, len(e.EntitiesImpacted), len(e.ErrorCode))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			fault.Entries(e)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			if allocated > 8*MaxFaultBytes {
				t.Errorf("%s, %d codes: making the entries takes %d bytes", name, codes, allocated)
			}
		}
	}
}

// TestRecoveriesAreNotCut: a recovery that names less could end more faults.
func TestRecoveriesAreNotCut(t *testing.T) {
	entities := func(n int, kind string) func(*protos.HealthEvent) {
		return func(p *protos.HealthEvent) {
			for i := range n {
				p.EntitiesImpacted = append(p.EntitiesImpacted, &protos.Entity{EntityType: kind, EntityValue: fmt.Sprint(i)})
			}
		}
	}
	codes := func(n int) func(*protos.HealthEvent) {
		return func(p *protos.HealthEvent) { p.ErrorCode = make([]string, n) }
	}
	tests := map[string]struct {
		change  func(*protos.HealthEvent)
		refused bool
	}{
		"at the bound":  {entities(MaxSubUnits, "NVLINK"), false},
		"sub-units":     {entities(MaxSubUnits+1, "NVLINK"), true},
		"entities":      {entities(MaxEntities, "GPU"), true},
		"codes":         {codes(MaxCodes + 1), true},
		"a cut message": {func(p *protos.HealthEvent) { p.Message = strings.Repeat("m", MaxMessage+1) }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, refusal := Normalise(event(tc.change, func(p *protos.HealthEvent) { p.IsHealthy, p.IsFatal = true, false }), node)
			if (refusal != nil) != tc.refused || refusal != nil && refusal.Reason != TooMany {
				t.Errorf("refusal %v, want one: %v", refusal, tc.refused)
			}
		})
	}
}

func TestMetadataCutKeepsOrderAndBoot(t *testing.T) {
	p := event(func(p *protos.HealthEvent) {
		p.RecommendedAction = 42
		p.Metadata = map[string]string{record.MetadataSeq: "7", record.MetadataSeqEpoch: "e", record.MetadataBootID: "b"}
		for i := range 100 {
			p.Metadata[fmt.Sprintf("a%03d", i)] = "v"
		}
	})
	e, _, refusal := Normalise(p, node)
	if refusal != nil {
		t.Fatal(refusal)
	}
	for key, want := range map[string]string{
		record.MetadataSeq: "7", record.MetadataSeqEpoch: "e", record.MetadataBootID: "b",
		record.MetadataUnknownAction: "42", "a000": "v", "a060": "",
	} {
		if got := e.Metadata[key]; got != want {
			t.Errorf("metadata[%q] = %q, want %q", key, got, want)
		}
	}
}

// Only cluster-wide publishers may derive ids: nobody else can use these.
func TestDerivedIDsAreThoseOfClusterWidePublishers(t *testing.T) {
	derived := event(func(p *protos.HealthEvent) { p.Id = "6f1ed0c5-6c1b-5a54-9d0e-2f6d4f7a3b52" })
	if e, _, refusal := Normalise(derived, ""); refusal != nil || e.ID != derived.GetId() {
		t.Errorf("%q, %v", e.ID, refusal)
	}
}

func TestBatchIsRefusedWhole(t *testing.T) {
	good := event()
	bad := event(func(p *protos.HealthEvent) { p.CheckName = "" })
	admitted, err := Batch([]*protos.HealthEvent{good, good, bad}, node)
	if admitted != nil || err == nil || err.Error() != "events[2].checkName: is empty" {
		t.Errorf("Batch = %v, %v", admitted, err)
	}
	if _, err := Batch(make([]*protos.HealthEvent, MaxEvents+1), node); err == nil {
		t.Error("accepted a batch above MaxEvents")
	}
	admitted, err = Batch([]*protos.HealthEvent{good}, node)
	if err != nil || len(admitted) != 1 {
		t.Errorf("Batch of one = %v, %v", admitted, err)
	}
}

// FuzzNormalise holds the connector to its promises for any bytes a publisher may
// send: the limits hold, every text is printable, and applying it again, as for
// a re-sent event, changes nothing.
func FuzzNormalise(f *testing.F) {
	for _, p := range []*protos.HealthEvent{
		event(),
		event(func(p *protos.HealthEvent) { p.Message = "a\nb\x00" }),
		event(func(p *protos.HealthEvent) { p.RecommendedAction, p.ProcessingStrategy = 41, 7 }),
		event(func(p *protos.HealthEvent) {
			p.Metadata = map[string]string{"seq": "1", "seqEpoch": "e", "x\ty": "z"}
		}),
		event(func(p *protos.HealthEvent) {
			p.DrainOverrides = &protos.BehaviourOverrides{Force: true, Skip: true}
		}),
	} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p protos.HealthEvent
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		p.NodeName = node
		e, _, refusal := Normalise(&p, node)
		if refusal != nil {
			if refusal.Field == "" || refusal.Reason == "" || refusal.Problem == "" {
				t.Fatalf("refusal %+v does not name field, reason and problem", refusal)
			}
			return
		}
		if problem := broken(e); problem != "" {
			t.Fatal(problem)
		}
		again, cuts, refusal := Normalise(record.ToProto(e), node)
		if refusal != nil || len(cuts) > 0 {
			t.Fatalf("a normalised event was cut (%v) or refused (%v)", cuts, refusal)
		}
		if record.Digest(again) != record.Digest(e) {
			t.Fatalf("not idempotent (-first +second):\n%s", cmp.Diff(e, again))
		}
	})
}

// broken names the first promise the event breaks, or nothing.
func broken(e record.Event) string {
	if len(e.EntitiesImpacted) > MaxEntities || len(e.ErrorCode) > MaxCodes ||
		len(e.EntitiesImpacted)*len(e.ErrorCode) > MaxPairs || fault.Size(e) > MaxFaultBytes || len(e.Metadata) > MaxMetadata || len(e.Message) > MaxMessage {
		return "a limit is exceeded"
	}
	texts := []string{e.Agent, e.ComponentClass, e.CheckName, e.Message, e.CustomRecommendedAction, e.ID}
	texts = append(texts, e.ErrorCode...)
	for _, x := range e.EntitiesImpacted {
		texts = append(texts, x.EntityType, x.EntityValue)
	}
	for k, v := range e.Metadata {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		for _, r := range s {
			if unfit(r) {
				return fmt.Sprintf("%q has a control character", s)
			}
		}
	}
	return ""
}

// unread is a field that the wire's message does not have, of as many bytes in all.
func unread(size int) []byte {
	field := protowire.AppendTag(nil, 99, protowire.BytesType)
	head := len(field) + protowire.SizeVarint(uint64(size-len(field)-2))
	return protowire.AppendBytes(field, make([]byte, size-head))
}
