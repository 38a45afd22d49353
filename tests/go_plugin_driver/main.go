// Drive plugins through Go libcni, so that plugins written with libcni.plugin are called by a runtime that is not ours.
//
// Usage: driver CACHE_DIR CONFLIST CONTAINER_ID NETNS IFNAME COMMAND...
// where a command is validate, version, add, check or del. CNI_PATH and CAP_ARGS as cnitool has them. Each command
// prints one line of JSON: {"command", "result", "code", "msg", "details", "error"}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

type answer struct {
	Command string      `json:"command"`
	Result  interface{} `json:"result,omitempty"`
	Code    uint        `json:"code,omitempty"`
	Msg     string      `json:"msg,omitempty"`
	Details string      `json:"details,omitempty"`
	Error   string      `json:"error,omitempty"`
}

func run(cni *libcni.CNIConfig, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, command string) (interface{}, error) {
	ctx := context.Background()
	switch command {
	case "validate":
		return cni.ValidateNetworkList(ctx, list)
	case "version":
		info, err := cni.GetVersionInfo(ctx, list.Plugins[0].Network.Type)
		if err != nil {
			return nil, err
		}
		return info.SupportedVersions(), nil
	case "add":
		return cni.AddNetworkList(ctx, list, rt)
	case "check":
		return nil, cni.CheckNetworkList(ctx, list, rt)
	case "del":
		return nil, cni.DelNetworkList(ctx, list, rt)
	}
	return nil, errors.New("unknown command " + command)
}

func main() {
	list, err := libcni.ConfListFromFile(os.Args[2])
	if err != nil {
		panic(err)
	}
	rt := &libcni.RuntimeConf{
		ContainerID: os.Args[3],
		NetNS:       os.Args[4],
		IfName:      os.Args[5],
		Args:        [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "web"}},
	}
	if text := os.Getenv("CAP_ARGS"); text != "" {
		if err := json.Unmarshal([]byte(text), &rt.CapabilityArgs); err != nil {
			panic(err)
		}
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), os.Args[1], nil)
	lines := json.NewEncoder(os.Stdout)
	for _, command := range os.Args[6:] {
		given := answer{Command: command}
		result, err := run(cni, list, rt, command)
		if err != nil {
			given.Error = err.Error()
			var said *types.Error
			if errors.As(err, &said) {
				given.Code, given.Msg, given.Details = said.Code, said.Msg, said.Details
			}
		} else {
			given.Result = result
		}
		if err := lines.Encode(given); err != nil {
			panic(err)
		}
	}
}
