// Command prose prints how the pages of a documentation are written, beside the targets of
// docs/contributing/style.md.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/nvidia/nvsentinel/tests/prose"
)

func main() {
	docs := flag.String("docs", "docs", "Directory of the pages.")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "prose prints style measurements of documentation pages with their targets.\n\nUsage: prose [--docs <directory>]")
		flag.PrintDefaults()
	}
	flag.Parse()
	pages, err := prose.Pages(*docs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	fmt.Print(prose.Table(pages))
}
