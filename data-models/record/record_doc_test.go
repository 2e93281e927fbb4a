package record

import "testing"

func TestCheckWriteOwnership(t *testing.T) {
	before := Status{}
	after := Status{NodeQuarantined: Quarantined}
	if err := CheckWrite(NodeDrainer, before, after); err == nil {
		t.Fatal("node-drainer wrote nodequarantined")
	}
	if err := CheckWrite(FaultQuarantine, before, after); err != nil {
		t.Fatal(err)
	}
}
