package forwardpolicy

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/platform-connectors/authz"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const analyzer = "system:serviceaccount:nvsentinel:health-events-analyzer"

func policy() Policy {
	return Policy{Agents: append(authz.DefaultAgents(),
		authz.Agent{Name: "health-events-analyzer", Account: analyzer, ClusterWide: true, Checks: []string{"Repeated*"}},
		authz.Agent{Name: "local", Account: "system:serviceaccount:nvsentinel:local"})}
}

func sentFault(edit ...func(*record.Record)) record.Record {
	id := uuid.Must(uuid.NewV7()).String()
	r := record.Record{
		ID: id, CreatedAt: now.Add(-time.Hour), Node: record.NodeIdentity{UID: "uid"}, Seq: 7, SeqEpoch: "e",
		Event: record.Event{
			Version: 1, ID: id, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", IsFatal: true, Message: "XID 79",
			RecommendedAction: record.ActionRestartBM, ErrorCode: []string{"79"}, EntitiesImpacted: []record.Entity{{EntityType: "PCI", EntityValue: "0000:3b:00"}},
			Metadata: map[string]string{"seq": "7", "seqEpoch": "e"}, GeneratedTimestamp: now, NodeName: "gpu-7", ProcessingStrategy: record.Process,
		},
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func derived(r *record.Record) {
	r.Event.Agent, r.Event.CheckName, r.Event.NodeName = "health-events-analyzer", "RepeatedXID79", "gpu-8"
	r.ID = uuid.NewSHA1(uuid.NameSpaceURL, []byte("x")).String()
	r.Event.ID = r.ID
}

// placed sets the place of an event in its publisher's order, and the one in the record that
// is stored.
func placed(output, stored uint64, epoch string) func(*record.Record) {
	return func(r *record.Record) {
		r.Event.Metadata["seq"] = strconv.FormatUint(output, 10)
		r.Seq, r.SeqEpoch = stored, epoch
	}
}

// unplaced is an event of a publisher that names its outbox, and no place in it.
func unplaced(r *record.Record) {
	delete(r.Event.Metadata, "seq")
	r.Seq, r.SeqEpoch = 0, ""
}

func TestPass(t *testing.T) {
	node := Caller{Node: "gpu-7"}
	wide := Caller{Node: "gpu-7", Publisher: &authz.Caller{Account: analyzer, Pod: "uid", Node: "gpu-7"}}
	tests := map[string]struct {
		caller Caller
		edit   func(*record.Record)
		want   Reason // empty: passed
	}{
		"its own fault":                      {node, func(*record.Record) {}, ""},
		"another node's fault":               {node, func(r *record.Record) { r.Event.NodeName = "gpu-8" }, ForeignNode},
		"no node":                            {node, func(r *record.Record) { r.Event.NodeName = "" }, ForeignNode},
		"a derived fault with its token":     {wide, derived, ""},
		"a derived fault without":            {node, derived, ForeignNode},
		"a derived fault of its own node":    {node, func(r *record.Record) { derived(r); r.Event.NodeName = "gpu-7" }, Unspoken},
		"another agent by the analyzer":      {wide, func(r *record.Record) { r.Event.NodeName = "gpu-8" }, ForeignAgent},
		"a verdict":                          {node, func(r *record.Record) { r.Status.QuarantineVerdict = &record.Verdict{Reason: record.Matched} }, HasStatus},
		"a cleared fault":                    {node, func(r *record.Record) { r.Status.Faults = []record.Fault{{Key: "x"}} }, HasStatus},
		"a revision":                         {node, func(r *record.Record) { r.Revision = 3 }, HasStatus},
		"an id that can be guessed":          {node, func(r *record.Record) { derived(r); *r = sentFault(func(f *record.Record) { f.ID = r.ID }) }, BadID},
		"an id that is none":                 {node, func(r *record.Record) { r.ID = "../x" }, BadID},
		"an id in another form":              {node, func(r *record.Record) { r.ID = strings.ToUpper(r.ID) }, BadID},
		"no agent":                           {node, func(r *record.Record) { r.Event.Agent = "" }, Malformed},
		"a check of 300 bytes":               {node, func(r *record.Record) { r.Event.CheckName = strings.Repeat("x", 300) }, Malformed},
		"a custom action without a name":     {node, func(r *record.Record) { r.Event.RecommendedAction = record.ActionCustom }, Malformed},
		"the nil id":                         {node, func(r *record.Record) { r.ID = uuid.Nil.String() }, BadID},
		"the nil id of a derived fault":      {wide, func(r *record.Record) { derived(r); r.ID = uuid.Nil.String() }, BadID},
		"a digest":                           {node, func(r *record.Record) { r.Accepted = record.Digest(r.Event) }, ""},
		"is invalid":                         {node, func(r *record.Record) { r.Accepted = "x" }, Malformed},
		"a digest of 31 bytes":               {node, func(r *record.Record) { r.Accepted = strings.Repeat("ab", 31) }, Malformed},
		"a digest with a tail":               {node, func(r *record.Record) { r.Accepted = strings.Repeat("ab", 32) + "x" }, Malformed},
		"a machine with a name of 512 bytes": {node, func(r *record.Record) { r.Node.BootID = strings.Repeat("x", 512) }, ""},
		"a machine with a name of 513 bytes": {node, func(r *record.Record) { r.Node.BootID = strings.Repeat("x", 513) }, Malformed},
		"the highest place in an order":      {node, placed(math.MaxInt64, math.MaxInt64, "e"), ""},
		"a place that no store can hold":     {node, placed(math.MaxInt64+1, 0, ""), ""},
		"no place in an order":               {node, unplaced, ""},
		"a time before all times":            {node, func(r *record.Record) { r.Event.GeneratedTimestamp = time.Time{} }, Malformed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := sentFault(tc.edit)
			got, refusal := policy().Pass(tc.caller, in, now)
			if tc.want != "" {
				if refusal == nil || refusal.Reason != tc.want {
					t.Errorf("refused for %v, want %s", refusal, tc.want)
				}
				return
			}
			if refusal != nil {
				t.Fatalf("refused: %v", refusal)
			}
			if diff := cmp.Diff(in, got); diff != "" {
				t.Errorf("changed (-brought +stored):\n%s", diff)
			}
		})
	}
}

// TestStoredContent: place, order, expiry and time are not the caller's,
// and lists are cut; its content stays the same, so that it is known again.
func TestStoredContent(t *testing.T) {
	past := now.Add(-time.Hour)
	in := sentFault(func(r *record.Record) {
		r.Append, r.ExpireAt, r.CreatedAt, r.Seq, r.SeqEpoch = 99, &past, now.AddDate(50, 0, 0), 1<<63, "other"
		for range 5000 {
			r.Event.ErrorCode = append(r.Event.ErrorCode, "x")
		}
	})
	got, refusal := policy().Pass(Caller{Node: "gpu-7"}, in, now)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if got.Append != 0 || got.ExpireAt != nil || !got.CreatedAt.Equal(now) || got.Seq != 7 || got.SeqEpoch != "e" || len(got.Event.ErrorCode) > 256 {
		t.Errorf("passed on: %+v", got)
	}
	if record.Content(got) != record.Content(in) {
		t.Error("its content is another one")
	}
	quiet, refusal := policy().Pass(Caller{Node: "gpu-7"}, sentFault(func(r *record.Record) {
		r.Event.ProcessingStrategy, r.ExpireAt = record.PersistOnly, &past
	}), now)
	if refusal != nil || !quiet.ExpireAt.Equal(now.Add(record.Retention)) {
		t.Errorf("a record on which nothing is to be done expires %v, %v", quiet.ExpireAt, refusal)
	}
}

func TestEnter(t *testing.T) {
	for name, tc := range map[string]struct {
		publisher *authz.Caller
		want      authz.Reason
	}{
		"a spool":                            {nil, ""},
		"the analyzer's pod of this node":    {&authz.Caller{Account: analyzer, Pod: "uid", Node: "gpu-7"}, ""},
		"the analyzer's pod of another":      {&authz.Caller{Account: analyzer, Pod: "uid", Node: "gpu-8"}, authz.ForeignPod},
		"a publisher without a token":        {&authz.Caller{Pod: "uid", Node: "gpu-7"}, authz.NoToken},
		"the analyzer's token without a pod": {&authz.Caller{Account: analyzer}, authz.Unbound},
		"an agent of its node":               {&authz.Caller{Account: "system:serviceaccount:nvsentinel:local", Pod: "uid", Node: "gpu-7"}, authz.ForeignAgent},
		"anybody":                            {&authz.Caller{Account: "system:serviceaccount:default:x", Pod: "uid", Node: "gpu-7"}, authz.ForeignAgent},
	} {
		var got authz.Reason
		if refusal := policy().Enter(Caller{Node: "gpu-7", Publisher: tc.publisher}); refusal != nil {
			got = refusal.Reason
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
