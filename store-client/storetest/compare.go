package storetest

import (
	"encoding/json"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// sameStatus compares as stored documents compare.
func sameStatus(a, b record.Status) bool { return document(a) == document(b) }

// document is the stored form of a value.
func document(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "unencodable: " + err.Error()
	}
	return string(b)
}
