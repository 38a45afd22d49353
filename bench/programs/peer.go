// The same work with Go libcni, for the benchmarks.
//
// Requests come on stdin, one a line; each is answered with a line of JSON, times in nanoseconds:
//
//	add FIRST COUNT PARALLEL   attach the containers c<FIRST>, c<FIRST+1>, ...
//	del FIRST COUNT 1          detach them
//	list CONTAINER             list one container's attachments; "-": all
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"
)

type times struct {
	Wall  int64   `json:"wall"`
	Each  []int64 `json:"each"`
	Found int     `json:"found"`
}

var (
	bin   = flag.String("bin", "", "directory with the plugins")
	cache = flag.String("cache", "", "cache directory")
	conf  = flag.String("conf", "", "configuration list")
	netns = flag.String("netns", "/proc/self/ns/net", "namespace; %d: the container's number")
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

func main() {
	flag.Parse()
	ctx := context.Background()
	list, err := libcni.ConfListFromFile(*conf)
	fatal(err)
	cni := libcni.NewCNIConfigWithCacheDir([]string{*bin}, *cache, nil)
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
				one, err := cni.GetCachedAttachments(strings.TrimPrefix(word, "-"))
				found = len(one)
				return err
			})
			taken.Found = found
			out.Encode(taken)
		default:
			fatal(fmt.Errorf("unknown request %q", text))
		}
	}
}
