package report_test

import (
	"testing"

	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

func TestConfigurationBlock(t *testing.T) {
	reference.Block(t, report.DefaultConnector())
	reference.Block(t, report.Acting{})
}
