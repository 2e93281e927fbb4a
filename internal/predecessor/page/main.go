// Command page writes what is made of the list of the earlier NVSentinel's names: the
// tables of its page, and the chart's list of values. It runs in internal/predecessor.
package main

import (
	"log"
	"os"

	"github.com/nvidia/nvsentinel/internal/predecessor"
)

func main() {
	if err := write(); err != nil {
		log.Fatal(err)
	}
}

func write() error {
	const page, values = "../../" + predecessor.Page, "../../distros/helm/nvsentinel/earlier-values.yaml"
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, []byte(predecessor.Tables(string(text))), 0o644); err != nil {
		return err
	}
	list, err := predecessor.Values()
	if err != nil {
		return err
	}
	return os.WriteFile(values, list, 0o644)
}
