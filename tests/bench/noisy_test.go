package bench

import (
	"strings"
	"testing"
)

func TestAccount(t *testing.T) {
	for name, tc := range map[string]struct {
		events          []acknowledgedEvent
		ids             string
		stored, missing int
		lost            string
	}{
		"all stored":                        {[]acknowledgedEvent{{"a", 1}, {"b", 2}}, "a b", 2, 0, ""},
		"a repeat of a stored one":          {[]acknowledgedEvent{{"a", 1}, {"b", 1}, {"c", 1}}, "a", 1, 2, ""},
		"records of others count for none":  {[]acknowledgedEvent{{"a", 1}}, "x a y", 1, 0, ""},
		"the first of a fault":              {[]acknowledgedEvent{{"a", 1}, {"b", 2}, {"c", 1}}, "a c", 1, 0, "event 1 is lost"},
		"one before that which is stored":   {[]acknowledgedEvent{{"a", 1}, {"b", 1}}, "b", 0, 0, "event 0 is lost"},
		"one of another fault than the one": {[]acknowledgedEvent{{"a", 1}, {"b", 2}}, "a", 1, 0, "event 1 is lost"},
	} {
		stored, missing, err := account(tc.events, strings.Fields(tc.ids))
		if stored != tc.stored || missing != tc.missing {
			t.Errorf("%s: %d stored, %d missing; want %d, %d", name, stored, missing, tc.stored, tc.missing)
		}
		if tc.lost == "" && err != nil || tc.lost != "" && (err == nil || !strings.Contains(err.Error(), tc.lost)) {
			t.Errorf("%s: %v, want %q", name, err, tc.lost)
		}
	}
}

// TestMurmur: the first fatal fault comes when the quota is used up, and no two events of
// the noisy node are alike.
func TestMurmur(t *testing.T) {
	n := &noise{stage: &stage{o: Options{Sizes: Sizes{NoiseQuota: 1000}}, pen: newPen()}}
	texts, first := map[string]bool{}, -1
	faults := map[int]string{}
	for i := range 10 * fatalEvery {
		e, fault := n.murmur(i)
		texts[e.GetMessage()] = true
		if e.GetIsFatal() && first < 0 {
			first = i
		}
		what := strings.Join(e.GetErrorCode(), ",") + " " + e.GetEntitiesImpacted()[0].GetEntityValue()
		if before, ok := faults[fault]; ok && before != what {
			t.Fatalf("event %d: fault %d is %s and %s", i, fault, before, what)
		}
		faults[fault] = what
	}
	if first != n.firstFatal() || first <= n.o.Sizes.NoiseQuota {
		t.Errorf("the first fatal fault is event %d", first)
	}
	if len(texts) != 10*fatalEvery || len(faults) != noiseGPUs*noiseCodes+8 {
		t.Errorf("%d texts, %d faults", len(texts), len(faults))
	}
}
