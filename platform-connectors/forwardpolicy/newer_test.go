package forwardpolicy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// brought is a record as the connector of a newer version sends it: with change made to
// the document of one of this version.
func brought(t *testing.T, change func(doc map[string]any), edit ...func(*record.Record)) record.Record {
	t.Helper()
	doc, err := record.AppendJSON(nil, sentFault(edit...))
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(doc, &tree); err != nil {
		t.Fatal(err)
	}
	change(tree)
	if doc, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func in(doc map[string]any, names ...string) map[string]any {
	for _, name := range names {
		doc = doc[name].(map[string]any) //nolint:forcetypeassert // a record's document
	}
	return doc
}

// TestAnActionOfANewerVersion: the gateway that does not know it stores it as UNKNOWN, a
// person's, with its name; one that knows the name understands the action. Its content
// stays the same, so that neither takes what the other stored for another event.
func TestAnActionOfANewerVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		metadata int // entries that the event has besides
		action   record.Action
		stored   record.Action // as this version understands what is stored
	}{
		"a name that nobody knows":         {0, "NEWER_ACTION", record.ActionUnknown},
		"beside as much as is stored":      {62, "NEWER_ACTION", record.ActionUnknown},
		"a name like a custom one":         {0, "restart vm", record.ActionUnknown},
		"an action that this version has":  {0, record.ActionRestartVM, record.ActionRestartVM},
		"what a person has to do":          {0, record.ActionContactSupport, record.ActionContactSupport},
		"nothing is asked for":             {0, record.ActionNone, record.ActionNone},
		"one that was unknown from before": {0, record.ActionUnknown, record.ActionUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := brought(t, func(doc map[string]any) { in(doc, "healthevent")["recommendedaction"] = string(tc.action) }, func(r *record.Record) {
				for i := range tc.metadata {
					r.Event.Metadata[fmt.Sprint("a", i)] = ""
				}
			})
			got, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if got.Event.Action() != tc.stored || got.Event.EffectiveAction() != tc.stored || record.Content(got) != record.Content(r) {
				t.Errorf("stored as %+v with content %s of %s", got.Event, record.Content(got), record.Content(r))
			}
			if text := got.Event.Metadata[record.MetadataUnknownAction]; !tc.action.Known() && text != string(tc.action) {
				t.Errorf("its name is %q", text)
			}
		})
	}
}

// TestStateOfOlderVersion: the version that knows the action understands what one that
// did not has stored.
func TestStateOfOlderVersion(t *testing.T) {
	for text, want := range map[string]record.Action{
		"RESTART_BM": record.ActionRestartBM, "24": record.ActionRestartBM, "NONE": record.ActionNone, "31": record.ActionUnknown,
		"": record.ActionUnknown, "restart_bm": record.ActionUnknown, "99999999999999": record.ActionUnknown, "UNKNOWN": record.ActionUnknown,
	} {
		e := record.Event{RecommendedAction: record.ActionUnknown, Metadata: map[string]string{record.MetadataUnknownAction: text}}
		if got := e.Action(); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	e := record.Event{RecommendedAction: record.ActionContactSupport, Metadata: map[string]string{record.MetadataUnknownAction: "RESTART_BM"}}
	if got := e.Action(); got != record.ActionContactSupport {
		t.Errorf("an action that is known became %s", got)
	}
}

func TestAStrategyOfANewerVersion(t *testing.T) {
	for text, want := range map[string]record.Strategy{
		"PROCESS_LATER": "PROCESS_LATER", "PERSIST_ONLY": record.PersistOnly, "": record.PersistOnly, "process": record.PersistOnly,
		strings.Repeat("X", 65): record.PersistOnly,
	} {
		r := brought(t, func(doc map[string]any) { in(doc, "healthevent")["processingstrategy"] = text })
		got, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if got.Event.ProcessingStrategy != want || got.Acts() || record.Content(got) != record.Content(r) {
			t.Errorf("%q is stored as %q, acts %v", text, got.Event.ProcessingStrategy, got.Acts())
		}
	}
}

// TestUnknownFieldsPass: unknown fields pass wherever a connector may send them, up to a limit.
func TestUnknownFieldsPass(t *testing.T) {
	newer := map[string]any{"x": []any{"y", map[string]any{"z": nil}}}
	everywhere := func(doc map[string]any) {
		doc["newer"], doc["minversion"] = newer, record.Version
		event := in(doc, "healthevent")
		event["newer"], in(doc, "node")["newer"], event["unread"] = newer, newer, "mAYB"
		event["entitiesimpacted"].([]any)[0].(map[string]any)["newer"] = newer //nolint:forcetypeassert // as fault has it
	}
	r := brought(t, everywhere)
	got, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("changed (-brought +stored):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		change func(doc map[string]any)
		want   Reason
	}{
		"in the status":      {func(doc map[string]any) { in(doc, "healtheventstatus")["newer"] = newer }, HasStatus},
		"deep in the status": {func(doc map[string]any) { in(doc, "healtheventstatus", "userpodsevictionstatus")["newer"] = newer }, HasStatus},
		"the status by other name": {func(doc map[string]any) {
			doc["healthEventStatus"] = map[string]any{"session": "s"}
			delete(doc, "healtheventstatus")
		}, HasStatus},
		"more than is passed on":  {func(doc map[string]any) { doc["newer"] = strings.Repeat("x", MaxUnknown) }, Malformed},
		"more on the wire":        {func(doc map[string]any) { in(doc, "healthevent")["unread"] = strings.Repeat("mAYB", MaxUnknown/3+1) }, Malformed},
		"as much as is passed on": {func(doc map[string]any) { doc["newer"] = strings.Repeat("x", MaxUnknown-20) }, ""},
	} {
		_, refusal := policy().Pass(Caller{Node: "gpu-7"}, brought(t, tc.change), now)
		if refusal == nil != (tc.want == "") || refusal != nil && refusal.Reason != tc.want {
			t.Errorf("%s: %v, want %q", name, refusal, tc.want)
		}
	}
}

// TestNoStatusByAnotherName: a status that is written twice, in other letters, is not
// passed on, whichever of the two counts.
func TestNoStatusByAnotherName(t *testing.T) {
	updated := `{"session":"s","nodequarantined":"Quarantined"}`
	for _, doc := range []string{`"HEALTHEVENTSTATUS":` + updated + `,"healtheventstatus":{`, `"healtheventstatus":{},"HEALTHEVENTSTATUS":{`} {
		text, err := record.AppendJSON(nil, sentFault())
		if err != nil {
			t.Fatal(err)
		}
		r, err := record.Decode([]byte(strings.Replace(string(text), `"healtheventstatus":{`, doc, 1)))
		if err != nil {
			t.Fatal(err)
		}
		got, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now)
		if refusal != nil {
			continue
		}
		stored, err := record.AppendJSON(nil, got)
		if err != nil || strings.Contains(string(stored), "STATUS") || !got.Status.Blank() {
			t.Errorf("passed on as %s, %v", stored, err)
		}
	}
}

// TestNewerVersionRecords: a node chooses no record that is never evaluated. Its
// fault is a person's, and its recovery ends nothing.
func TestNewerVersionRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		version int
		healthy bool
		action  record.Action
		refused bool
	}{
		"a fault of this version":      {record.Version, false, record.ActionRestartBM, false},
		"a fault of a newer version":   {record.Version + 1, false, record.ActionUnknown, false},
		"of one that nobody will have": {1 << 30, false, record.ActionUnknown, false},
		"a recovery of this version":   {record.Version, true, record.ActionRestartBM, false},
		"a recovery of a newer one":    {record.Version + 1, true, "", true},
	} {
		r := brought(t, func(doc map[string]any) {
			doc["minversion"] = tc.version
			in(doc, "healthevent")["recommendedaction"], in(doc, "healthevent")["ishealthy"] = "RESTART_BM", tc.healthy
		})
		got, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now)
		if (refusal != nil) != tc.refused || refusal != nil && refusal.Reason != Newer {
			t.Errorf("%s: %v", name, refusal)
		}
		if refusal != nil {
			continue
		}
		if got.Event.Action() != tc.action || record.NeedsNewer(got) != "" || record.Content(got) != record.Content(r) {
			t.Errorf("%s: action %s, %q, content %s of %s", name, got.Event.Action(), record.NeedsNewer(got), record.Content(got), record.Content(r))
		}
		if text := got.Event.Metadata[record.MetadataUnknownAction]; tc.action == record.ActionUnknown && !strings.HasPrefix(text, "RESTART_BM of record version") {
			t.Errorf("%s: its action is kept as %q", name, text)
		}
	}
}

// TestNumbersOfANewerVersionAreBoundedWrittenOut: a few bytes of a number may be very many
// digits, and PostgreSQL gives a document back with all of them.
func TestNumbersOfANewerVersionAreBoundedWrittenOut(t *testing.T) {
	for name, tc := range map[string]struct {
		value   any
		refused bool
	}{
		"usual numbers":                {[]any{json.Number("1"), json.Number("-2.5e-7"), json.Number("1e+21")}, false},
		"as many digits as are stored": {json.Number("1e60000"), false},
		"many digits":                  {json.Number("1e131071"), true},
		"many after the point":         {json.Number("1e-131071"), true},
		"more than can be stored":      {json.Number("1E99999999999999999999"), true},
		"many numbers":                 {map[string]any{"x": strings.Split(strings.Repeat("7,", 10), ","), "y": numbers("1e308", 300)}, true},
	} {
		for _, of := range []string{"", "healthevent"} {
			r := brought(t, func(doc map[string]any) {
				if of != "" {
					doc = in(doc, of)
				}
				doc["newer"] = tc.value
			})
			if _, refusal := policy().Pass(Caller{Node: "gpu-7"}, r, now); (refusal != nil) != tc.refused {
				t.Errorf("%s in %q: %v", name, of, refusal)
			}
		}
	}
}

func numbers(text string, n int) (out []any) {
	for range n {
		out = append(out, json.Number(text))
	}
	return out
}
