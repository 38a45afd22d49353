// The same work with Go libcni, for the benchmarks.
//
// Requests come on stdin, one a line; each is answered with a line of JSON, times in nanoseconds:
//
//	add FIRST COUNT PARALLEL   attach the containers c<FIRST>, c<FIRST+1>, ...
//	del FIRST COUNT            detach them
//	list CONTAINER             list one container's attachments; "-": all
//	gc FILE                    GC; FILE has a valid container ID in each line
//	load COUNT                 read the configuration
//	derive COUNT               ADD with an Exec that answers at once: all but the processes
//
// Go libcni 1.1.2, which Debian has, can neither list nor GC: cachedAttachments and gc below do what later releases
// do (libcni/api.go, GetCachedAttachments and GCNetworkList of 1.2.0).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

const answer = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/bench"}],` +
	`"ips":[{"interface":0,"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],` +
	`"dns":{"nameservers":["10.1.0.1"]}}`

type times struct {
	Wall  int64   `json:"wall"`
	Each  []int64 `json:"each"`
	Found int     `json:"found"`
}

type instant struct{ version.PluginDecoder }

func (*instant) ExecPlugin(context.Context, string, []byte, []string) ([]byte, error) {
	return []byte(answer), nil
}

func (*instant) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

var (
	bin   = flag.String("bin", "", "directory with the plugins")
	cache = flag.String("cache", "", "cache directory")
	conf  = flag.String("conf", "", "configuration list")
	netns = flag.String("netns", "/proc/self/ns/net", "namespace; %d: the container's number")
	hold  = flag.Int("hold", 0, "MiB of memory to hold")
)

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runtimeConf(number int) *libcni.RuntimeConf {
	place := *netns
	if strings.Contains(place, "%d") {
		place = fmt.Sprintf(place, number)
	}
	return &libcni.RuntimeConf{ContainerID: fmt.Sprintf("c%d", number), NetNS: place, IfName: "eth0",
		CapabilityArgs: map[string]interface{}{"portMappings": []map[string]interface{}{
			{"hostPort": 20000 + number%20000, "containerPort": 80, "protocol": "tcp"}}}}
}

func each(count, parallel int, work func(int) error) times {
	var next int64 = -1
	var group sync.WaitGroup
	taken := make([]int64, count)
	start := time.Now()
	for worker := 0; worker < parallel; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				index := int(atomic.AddInt64(&next, 1))
				if index >= count {
					return
				}
				begin := time.Now()
				fatal(work(index))
				taken[index] = time.Since(begin).Nanoseconds()
			}
		}()
	}
	group.Wait()
	return times{Wall: time.Since(start).Nanoseconds(), Each: taken}
}

type cached struct {
	Kind           string                 `json:"kind"`
	ContainerID    string                 `json:"containerId"`
	Config         []byte                 `json:"config"`
	IfName         string                 `json:"ifName"`
	NetworkName    string                 `json:"networkName"`
	NetNS          string                 `json:"netns,omitempty"`
	CniArgs        [][2]string            `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]interface{} `json:"capabilityArgs,omitempty"`
	RawResult      map[string]interface{} `json:"result,omitempty"`
}

func cachedAttachments(containerID string) ([]*cached, error) {
	directory := filepath.Join(*cache, "results")
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	sort.Strings(names)
	found := []*cached{}
	for _, name := range names {
		if len(containerID) > 0 {
			part := fmt.Sprintf("-%s-", containerID)
			pos := strings.Index(name, part)
			if pos <= 0 || pos+len(part) >= len(name) {
				continue
			}
		}
		data, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			continue
		}
		one := cached{}
		if json.Unmarshal(data, &one) != nil || one.Kind != libcni.CNICacheV1 {
			continue
		}
		if (len(containerID) > 0 && one.ContainerID != containerID) || one.IfName == "" || one.NetworkName == "" {
			continue
		}
		found = append(found, &one)
	}
	return found, nil
}

func gc(cni libcni.CNI, list *libcni.NetworkConfigList, valid map[string]bool) (int, error) {
	found, err := cachedAttachments("")
	if err != nil {
		return 0, err
	}
	stale := 0
	for _, one := range found {
		if one.NetworkName != list.Name || valid[one.ContainerID] {
			continue
		}
		stale++
		err := cni.DelNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: one.ContainerID,
			NetNS: one.NetNS, IfName: one.IfName, Args: one.CniArgs, CapabilityArgs: one.CapabilityArgs})
		if err != nil {
			return stale, err
		}
	}
	return stale, nil
}

func lines(path string) map[string]bool {
	data, err := os.ReadFile(path)
	fatal(err)
	valid := map[string]bool{}
	for _, line := range strings.Fields(string(data)) {
		valid[line] = true
	}
	return valid
}

func main() {
	flag.Parse()
	memory := make([]byte, *hold<<20)
	for index := 0; index < len(memory); index += 4096 {
		memory[index] = 1
	}
	ctx := context.Background()
	list, err := libcni.ConfListFromFile(*conf)
	fatal(err)
	cni := libcni.NewCNIConfigWithCacheDir([]string{*bin}, *cache, nil)
	dry := libcni.NewCNIConfigWithCacheDir([]string{*bin}, *cache, &instant{})
	out := json.NewEncoder(os.Stdout)
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		var verb, word string
		var first, count, parallel int
		text := requests.Text()
		fmt.Sscan(text, &verb, &word)
		switch verb {
		case "add":
			fmt.Sscan(text, &verb, &first, &count, &parallel)
			out.Encode(each(count, parallel, func(index int) error {
				_, err := cni.AddNetworkList(ctx, list, runtimeConf(first+index))
				return err
			}))
		case "del":
			fmt.Sscan(text, &verb, &first, &count)
			out.Encode(each(count, 1, func(index int) error {
				return cni.DelNetworkList(ctx, list, runtimeConf(first+index))
			}))
		case "list":
			found := 0
			taken := each(1, 1, func(int) error {
				one, err := cachedAttachments(strings.TrimPrefix(word, "-"))
				found = len(one)
				return err
			})
			taken.Found = found
			out.Encode(taken)
		case "gc":
			valid, found := lines(word), 0
			taken := each(1, 1, func(int) error {
				var err error
				found, err = gc(cni, list, valid)
				return err
			})
			taken.Found = found
			out.Encode(taken)
		case "load":
			fmt.Sscan(text, &verb, &count)
			out.Encode(each(count, 1, func(int) error {
				_, err := libcni.ConfListFromFile(*conf)
				return err
			}))
		case "derive":
			fmt.Sscan(text, &verb, &count)
			out.Encode(each(count, 1, func(index int) error {
				_, err := dry.AddNetworkList(ctx, list, runtimeConf(index))
				return err
			}))
		default:
			fatal(fmt.Errorf("unknown request %q", text))
		}
	}
	_ = memory
}
