package redfish

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// looks is how often a task is looked at: an error of the BMC shows at once, and
// the boot of the machine is not waited for.
const looks = 6

// follow looks at the task of a reset that a BMC took. It fails if the task did.
func (d *Driver) follow(client *gofish.APIClient, info *schemas.TaskMonitorInfo) error {
	if info == nil {
		return nil
	}
	over, err := verdict(info.Task)
	monitor, bad := url.Parse(info.TaskMonitor)
	if over || bad != nil || monitor.Path == "" {
		return err
	}
	for range looks {
		<-d.clock.After(d.pause)
		if over, err := ask(client, monitor.Path); over {
			return err
		}
	}
	return nil
}

// ask looks at a task once. A monitor that can not be read tells nothing: the
// reset was taken.
func ask(client *gofish.APIClient, path string) (over bool, err error) {
	answer, err := client.Get(path)
	if refused, ok := errors.AsType[*schemas.Error](err); ok && refused.HTTPReturnedStatusCode != http.StatusNotFound {
		// A monitor answers as the request itself would have. But the BMC took that one.
		return true, status.Error(codes.Unavailable, shorten("the BMC took the reset, and its task was refused: "+words(refused)))
	}
	if err != nil {
		return true, nil
	}
	defer schemas.DeferredCleanupHTTPResponse(answer)
	var task schemas.Task
	if json.NewDecoder(answer.Body).Decode(&task) != nil || task.TaskState == "" {
		return answer.StatusCode != http.StatusAccepted, nil
	}
	return verdict(&task)
}

// verdict says of a task whether it is over, and whether it failed.
func verdict(task *schemas.Task) (over bool, err error) {
	if task == nil {
		return false, nil
	}
	switch task.TaskState {
	case schemas.CompletedTaskState:
		return true, nil
	case schemas.ExceptionTaskState, schemas.KilledTaskState, schemas.CancelledTaskState:
		text := []string{"the BMC took the reset, and its task ended as " + string(task.TaskState) + ":"}
		for _, m := range task.Messages {
			text = append(text, m.MessageID, m.Message)
		}
		return true, status.Error(codes.Unavailable, shorten(strings.Join(text, " ")))
	default:
		return false, nil
	}
}
