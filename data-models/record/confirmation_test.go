package record

import (
	"strings"
	"testing"
	"time"
)

func TestConfirmationID(t *testing.T) {
	for version, of := range map[string]string{"7": "019a1b2c-3d4e-7f01-8234-56789abcdef0", "4": "c9bf9e57-1685-4c89-bafb-ff5af830be8a"} {
		id, err := ConfirmationID(of)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ConfirmationID(of)
		if err != nil || id != again || id == of || id[14:15] != version || len(id) != 36 || !strings.ContainsAny(id[19:20], "89ab") {
			t.Errorf("%s gives %s, then %s, %v", of, id, again, err)
		}
		if sameTime := id[:13] == of[:13]; sameTime != (version == "7") {
			t.Errorf("%s gives %s", of, id)
		}
		e := Event{ID: id, Metadata: map[string]string{MetadataConfirms: of}}
		if e.Confirms() != of {
			t.Errorf("it confirms %q", e.Confirms())
		}
		if e.ID = of; e.Confirms() != "" {
			t.Error("an event with an id of its own confirms another")
		}
	}
	for _, of := range []string{"", "x", "C9BF9E57-1685-4C89-BAFB-FF5AF830BE8A", "c9bf9e5716854c89bafbff5af830be8a"} {
		if id, err := ConfirmationID(of); err == nil {
			t.Errorf("%q gives %s", of, id)
		}
	}
}

func TestWaits(t *testing.T) {
	waits := func(s Strategy, within string) Event {
		return Event{ProcessingStrategy: s, Metadata: map[string]string{
			MetadataStrategyReason: Unconfirmed, MetadataWaitsFor: "DCGM", MetadataWaitsWithin: within,
		}}
	}
	if what, within, ok := waits(PersistOnly, "10m0s").Waits(); !ok || what != "DCGM" || within != 10*time.Minute {
		t.Errorf("it waits %v for %q, %v", ok, what, within)
	}
	if _, within, ok := waits(PersistOnly, "soon").Waits(); !ok || within != 0 {
		t.Errorf("it waits %v, %v", ok, within)
	}
	if _, _, ok := waits(Process, "10m0s").Waits(); ok {
		t.Error("a PROCESS event waits")
	}
}
