package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// confirmationRules has an XID 79 wait for DCGM's word of the same GPU.
const confirmationRules = `[[rules]]
name = "both-say"
when = '"79" in event.errorCode'
second = 'event.agent == "gpu-health-monitor"'
within = "10m"
`

// confirming gives a place rules, and returns the flag that names them.
func confirming(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pipeline.toml":     "[[pipeline]]\nname = \"Confirmation\"\nenabled = true\nconfig = \"confirmation.toml\"\n",
		"confirmation.toml": confirmationRules,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "--pipeline-config=" + filepath.Join(dir, "pipeline.toml")
}

// dcgm is what another agent reports about the same GPU.
func dcgm(publisher string, seq int) *protos.HealthEvent {
	e := event(publisher, seq)
	e.Agent, e.CheckName, e.ErrorCode, e.IsFatal = "gpu-health-monitor", "GpuAllWatch", []string{"DCGM_FR_GPU_LOST"}, false
	e.Id = uuid.NewSHA1(uuid.Nil, []byte("dcgm"+e.GetId())).String()
	e.Id = e.Id[:14] + "4" + e.Id[15:]
	e.Metadata[record.MetadataSeqEpoch] = "dcgm-" + publisher
	return e
}

// confirmations are what the records' confirmations confirm, by id.
func confirmations(all []record.Record) map[string]int {
	out := map[string]int{}
	for _, r := range all {
		if of := r.Event.Confirms(); of != "" {
			out[of]++
		}
	}
	return out
}

// TestAFaultIsActedUponOnceConfirmed goes from the real connector to the real store and
// the Node: a fault that waits makes no condition, and is known to the next life of
// the connector; the second signal has it act, once; its recovery ends it.
func TestAFaultIsActedUponOnceConfirmed(t *testing.T) {
	s := newSite(t)
	s.makeStoreReachable()
	s.args = append(s.args, confirming(t))
	connector := s.start()
	s.send(event("a", 1), healthy("b", 1)) // what comes behind shows that the other was passed
	s.awaitCondition(check, cleared)
	first := awaitStored(t, s.records(), 2)[0]
	if what, _, waits := first.Event.Waits(); !waits || first.ExpireAt == nil || !strings.Contains(what, "a second signal about the same device within 10m0s") {
		t.Errorf("it is stored as %+v", first.Event)
	}
	connector.kill()
	connector = s.start()
	s.send(dcgm("a", 1))
	connector.kill()
	connector = s.start()
	s.awaitCondition(check, faulty(entry("a", 1)))
	awaitStored(t, s.records(), 4)
	connector.kill()
	s.start()
	s.send(dcgm("a", 2), event("a", 2))
	awaitStored(t, s.records(), 6)
	s.send(healthy("a", 3))
	s.awaitCondition(check, cleared)
	all := awaitStored(t, s.records(), 7)
	if got := confirmations(all); len(all) != 7 || len(got) != 1 || got[first.ID] != 1 {
		t.Errorf("%d records, confirmed: %v", len(all), got)
	}
	for _, r := range all {
		if r.Event.Confirms() != "" && (!r.Acts() || r.Event.Metadata[record.MetadataConfirmedBy] != dcgm("a", 1).GetId() || r.Seq != 1 || r.SeqEpoch != "epoch-a") {
			t.Errorf("the confirmation is %+v", r)
		}
	}
}

// TestConfirmedOnceDespiteKills: faults and their second signals come while the
// connector and the gateways between it and the store are killed.
func TestConfirmedOnceDespiteKills(t *testing.T) {
	testkit.Long(t, "TestAConfirmationSurvivesItsCrashPoints, and internal/confirmation TestOnceWhereverItDies at every call")
	a := newAvenue(t)
	gateways := []*process{a.gateway(0), a.gateway(1)}
	a.flags = []string{confirming(t)}
	connector := a.connector()
	const gpus = 8
	ids := map[string]int{}
	for n := range gpus {
		name := fmt.Sprint("g", n)
		x := event(name, 1)
		ids[x.GetId()]++
		a.send(x)
		if n%2 == 0 {
			gateways[n/2%2].kill()
			gateways[n/2%2] = a.gateway(n / 2 % 2)
		} else {
			connector.kill()
			connector = a.connector()
		}
		a.send(dcgm(name, 1))
		if n%3 == 0 {
			connector.kill()
			connector = a.connector()
		}
	}
	connector.kill()
	a.connector()
	all := awaitStored(t, a.records(), 3*gpus)
	got := confirmations(all)
	for id := range ids {
		if got[id] != 1 {
			t.Errorf("fault %s is confirmed %d times", id, got[id])
		}
	}
	if len(all) != 3*gpus {
		t.Errorf("%d records, want %d", len(all), 3*gpus)
	}
}
