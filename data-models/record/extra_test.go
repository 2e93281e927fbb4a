package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// newer is a record of a newer version, with an unknown member at each level; %s is
// where a case puts its own.
const newer = `{
 "id": "01a0", "createdAt": "2026-03-01T12:00:00Z", "revision": 3, "append": 7, "seq": 18446744073709551615, "seqepoch": "e",
 "node": {"uid": "u", "providerid": "p", "systemuuid": "s", "bootid": "b", "zone": "z"},
 "healthevent": {
  "version": 1, "agent": "a", "componentclass": "GPU", "checkname": "c", "isfatal": true, "ishealthy": false, "message": "<m>",
  "recommendedaction": "NEWER_ACTION", "errorcode": ["79"], "metadata": {"k": "v"}, "generatedtimestamp": "2026-03-01T12:00:00Z",
  "entitiesimpacted": [{"entitytype": "GPU", "entityvalue": "1", "slot": 4}, {"entitytype": "GPU", "entityvalue": "2"}],
  "nodename": "n", "quarantineoverrides": {"force": true, "skip": false, "until": "x"}, "drainoverrides": null,
  "processingstrategy": "PROCESS", "id": "01a0", "customrecommendedaction": "", "severity": {"score": 1e400, "of": [1, {"x": null}]}
 },
 "healtheventstatus": {
  "nodequarantined": "Quarantined", "quarantinefinishtimestamp": null, "drainfinishtimestamp": null,
  "userpodsevictionstatus": {"status": "Succeeded", "message": "", "pods": 12345678901234567890}, "faultremediated": null, "lastremediationtimestamp": null,
  "remediation": {"cause": "01a0", "outcome": "", "reason": "", "message": "", "budget": "b", "attempts": [
   {"ordinal": 1, "name": "r1", "state": "Failed", "signalsent": true, "finishedat": null, "cost": 1,
    "steps": [{"name": "one", "state": "Succeeded", "retries": 2}, {"name": "two", "state": "Failed", "retries": 3}]},
   {"ordinal": 2, "name": "r2", "state": "Running", "signalsent": false, "finishedat": null, "cost": 2}]},
  "quarantineverdict": {"reason": "Matched", "at": "2026-03-01T12:00:00Z", "score": 1,
   "effects": {"cordon": true, "taints": [{"key": "t", "value": "", "effect": "NoSchedule", "for": "1h"}, {"key": "t", "value": "", "effect": "NoExecute", "for": "2h"}]}},
  "session": "01a0", "faults": [{"key": "f", "clearedtimestamp": null, "clearedby": "", "score": 9}], "phase": "New"
 },
 "expireAt": null, "minversion": 2, "signature": "s"
}`

func decoded(t *testing.T, doc string) record.Record {
	t.Helper()
	r, err := record.Decode([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tree is a document for comparing.
func tree(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(doc)))
	dec.UseNumber()
	var out map[string]any
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func encoded(t *testing.T, r record.Record) []byte {
	t.Helper()
	doc, err := record.AppendJSON(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// lookup follows names and places in a tree, such as "a.b[1].c".
func lookup(t *testing.T, in any, path string) any {
	t.Helper()
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch v := in.(type) {
		case map[string]any:
			in = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				return nil
			}
			in = v[i]
		default:
			return nil
		}
	}
	return in
}

// TestUnknownFieldsArePreserved: a document of a newer version is encoded with everything
// that it had, by whatever way.
func TestUnknownFieldsArePreserved(t *testing.T) {
	r := decoded(t, newer)
	want := tree(t, []byte(newer))
	for _, path := range []string{"node.uid", "healthevent.severity", "healtheventstatus.remediation.attempts[0].steps[1].retries"} {
		if lookup(t, want, path) == nil {
			t.Fatalf("the document has no %s", path)
		}
	}
	viaJSON, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for how, doc := range map[string][]byte{"AppendJSON": encoded(t, r), "package json": viaJSON} {
		got := tree(t, doc)
		// Members that this version adds although the document lacks them.
		known := tree(t, []byte(newer))
		lookup(t, known, "healtheventstatus.remediation").(map[string]any)["attempts"] = lookup(t, got, "healtheventstatus.remediation.attempts")
		lookup(t, known, "healtheventstatus.quarantineverdict").(map[string]any)["effects"] = lookup(t, got, "healtheventstatus.quarantineverdict.effects")
		if diff := cmp.Diff(known, got); diff != "" {
			t.Errorf("%s (-stored +encoded):\n%s", how, diff)
		}
		for _, path := range []string{
			"healtheventstatus.remediation.attempts[0].cost", "healtheventstatus.remediation.attempts[0].steps[0].retries",
			"healtheventstatus.remediation.attempts[0].steps[1].retries", "healtheventstatus.remediation.attempts[1].cost",
			"healtheventstatus.quarantineverdict.effects.taints[0].for", "healtheventstatus.quarantineverdict.effects.taints[1].for",
		} {
			if diff := cmp.Diff(lookup(t, want, path), lookup(t, got, path)); diff != "" {
				t.Errorf("%s: %s (-stored +encoded):\n%s", how, path, diff)
			}
		}
	}
	again := decoded(t, string(encoded(t, r)))
	if diff := cmp.Diff(r, again); diff != "" {
		t.Errorf("decoded again (-once +twice):\n%s", diff)
	}
	event, err := record.AppendEvent([]byte("prefix"), r.Event)
	if err != nil || !strings.HasPrefix(string(event), "prefix{") {
		t.Fatal(string(event), err)
	}
	if diff := cmp.Diff(want["healthevent"], any(tree(t, event[len("prefix"):]))); diff != "" {
		t.Errorf("the event alone (-stored +encoded):\n%s", diff)
	}
}

// TestUnknownFieldsFollowTheirElement: an element takes along what this version does
// not know of it, however the list around it changes.
func TestUnknownFieldsFollowTheirElement(t *testing.T) {
	r := decoded(t, newer)
	rem := r.Status.Remediation
	rem.Attempts[0].State, rem.Attempts[0].Steps = "Succeeded", rem.Attempts[0].Steps[1:]
	rem.Attempts = append([]record.Attempt{{Ordinal: 0, Name: "r0"}, rem.Attempts[1], rem.Attempts[0]}, record.Attempt{Ordinal: 3, Name: "r3"})
	r.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU", EntityValue: "3"}, {EntityType: "GPU", EntityValue: "1"}}
	r.Status.QuarantineVerdict.Effects.Taints[0], r.Status.QuarantineVerdict.Effects.Taints[1] = r.Status.QuarantineVerdict.Effects.Taints[1], r.Status.QuarantineVerdict.Effects.Taints[0]
	r.Status.Faults = append(r.Status.Faults, record.Fault{Key: "g"})
	got := tree(t, encoded(t, r))
	for path, want := range map[string]any{
		"healtheventstatus.remediation.attempts[0].cost":             nil,
		"healtheventstatus.remediation.attempts[1].cost":             json.Number("2"),
		"healtheventstatus.remediation.attempts[2].cost":             json.Number("1"),
		"healtheventstatus.remediation.attempts[2].state":            "Succeeded",
		"healtheventstatus.remediation.attempts[2].steps[0].retries": json.Number("3"),
		"healtheventstatus.remediation.attempts[3].cost":             nil,
		"healtheventstatus.remediation.budget":                       "b",
		"healthevent.entitiesimpacted[0].slot":                       nil,
		"healthevent.entitiesimpacted[1].slot":                       json.Number("4"),
		"healtheventstatus.quarantineverdict.effects.taints[0].for":  "2h",
		"healtheventstatus.quarantineverdict.effects.taints[1].for":  "1h",
		"healtheventstatus.faults[0].score":                          json.Number("9"),
		"healtheventstatus.faults[1].score":                          nil,
		"healtheventstatus.userpodsevictionstatus.pods":              json.Number("12345678901234567890"),
		"healthevent.severity.score":                                 json.Number("1e400"),
		"healtheventstatus.phase":                                    "New",
	} {
		if diff := cmp.Diff(want, lookup(t, got, path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// TestNothingKnownIsTakenForUnknown: what the owner of a field removed stays removed,
// and a name in other letters is no second one.
func TestNothingKnownIsTakenForUnknown(t *testing.T) {
	r := decoded(t, newer)
	r.Status.Remediation, r.Status.QuarantineVerdict = nil, nil
	got := tree(t, encoded(t, r))
	for _, path := range []string{"healtheventstatus.remediation", "healtheventstatus.quarantineverdict"} {
		if v := lookup(t, got, path); v != nil {
			t.Errorf("%s is back: %v", path, v)
		}
	}
	waiting := strings.Replace(newer, `"budget": "b"`, `"budget": "b", "waiting": {"reason": "r", "message": "m", "since": "2026-03-01T12:00:00Z", "by": "x"}`, 1)
	r = decoded(t, waiting)
	if r.Status.Remediation.Waiting == nil {
		t.Fatal("it waits for nothing")
	}
	r.Status.Remediation.Waiting = nil
	if v := lookup(t, tree(t, encoded(t, r)), "healtheventstatus.remediation.waiting"); v != nil {
		t.Errorf("what it waited for is back: %v", v)
	}
	letters := strings.Replace(newer, `"session": "01a0"`, `"SE\u017f\u017fION": "01a0", "Chain": ""`, 1)
	r = decoded(t, letters)
	if r.Status.Session != "01a0" {
		t.Fatalf("the session is %q", r.Status.Session)
	}
	r.Status.Session = "01a1"
	status := lookup(t, tree(t, encoded(t, r)), "healtheventstatus").(map[string]any)
	for name, value := range status {
		if strings.EqualFold(name, "session") && (name != "session" || value != "01a1") {
			t.Errorf("the document has %q %v", name, value)
		}
	}
}

// TestKnownFieldsMakeNoExtra: the documents of this version have no Extra.
func TestKnownFieldsMakeNoExtra(t *testing.T) {
	r := decoded(t, newer)
	r.Extra, r.Event.Extra, r.Status.Extra = nil, nil, nil
	again := decoded(t, string(encoded(t, r)))
	if again.HasExtra() {
		t.Errorf("an Extra of nothing: %+v", again)
	}
	for _, doc := range []string{"", "{", "[]", `{"revision": "x"}`, `{"new": 1, "revision": "x"}`, `{} {}`, `{"new": 1} x`} {
		if r, err := record.Decode([]byte(doc)); err == nil {
			t.Errorf("%q is the record %+v", doc, r)
		}
	}
}

// TestDigestIsOfTheFirstFields: two versions come to the same digest of an event,
// whatever only one of them knows.
func TestDigestIsOfTheFirstFields(t *testing.T) {
	r := decoded(t, newer)
	bare := r
	bare.Event.Extra, bare.Event.Unread = nil, nil
	r.Event.Unread = []byte{1}
	if record.Content(r) != record.Content(bare) {
		t.Error("what this version does not know is in the digest")
	}
}

// FuzzDecode: whatever is decoded is encoded as a document that is decoded the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(newer))
	f.Add([]byte(`{"id":"x","new":{"a":[1,{"b":2}]},"healthevent":{"entitiesimpacted":[{"q":1}]}}`))
	f.Add([]byte(`{"HEALTHEVENT":{"x":1},"healthevent":{"y":2}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := record.Decode(doc)
		if err != nil {
			return
		}
		once, err := record.AppendJSON(nil, r)
		if err != nil {
			return // a year that no document has
		}
		again, err := record.Decode(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := record.AppendJSON(nil, again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tree(t, once), tree(t, twice)); diff != "" {
			t.Errorf("(-once +twice):\n%s", diff)
		}
	})
}
