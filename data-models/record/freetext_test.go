package record

import "testing"

func TestReadsMessage(t *testing.T) {
	for expression, want := range map[string]bool{
		`event.message.contains("x")`:                 true,
		`event . message == ""`:                       true,
		`event.?message.orValue("") == ""`:            true,
		`event["message"].startsWith("NVRM")`:         true,
		`event[?'message'].hasValue()`:                true,
		`"79" in event.errorCode && event.isFatal`:    false,
		`event.messages == 1`:                         false,
		`myevent.message == ""`:                       false,
		`event.metadata["message"] == "x"`:            false,
		`event.checkName == "message" && event.agent`: false,
	} {
		if got := ReadsMessage(expression); got != want {
			t.Errorf("%s: %t", expression, got)
		}
	}
}
