// Command nvidia-smi stands in for the driver's: it knows the GPUs of the file /gpus
// of its root, one line each (uuid, bus id, and what becomes of a reset: ok, busy, or
// lost), and writes what it was asked into /calls.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	args := os.Args[1:]
	calls, err := os.OpenFile("/calls", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(calls, strings.Join(args, " "))
	}
	text, err2 := os.ReadFile("/gpus")
	if err != nil || err2 != nil {
		fmt.Println(err, err2)
		os.Exit(9)
	}
	wanted := ""
	if i := slices.Index(args, "-i"); i >= 0 {
		wanted = args[i+1]
	}
	known := false
	for line := range strings.Lines(string(text)) {
		gpu := strings.Fields(line)
		if wanted != "" && !slices.Contains(gpu[:2], wanted) {
			continue
		}
		known = true
		switch {
		case args[0] == "--gpu-reset" && gpu[2] == "busy":
			fmt.Println("GPU Reset couldn't run because GPU " + gpu[1] + " is the primary GPU or in use.")
			os.Exit(19)
		case args[0] == "-q" && gpu[2] == "lost":
			fmt.Println("Unable to determine the device handle for GPU " + gpu[1] + ": GPU is lost.")
			os.Exit(15)
		case strings.HasPrefix(args[0], "--query-gpu"):
			fmt.Println(gpu[0])
		}
	}
	if !known {
		fmt.Println("No devices were found")
		os.Exit(6)
	}
}
