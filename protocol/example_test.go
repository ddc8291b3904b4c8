package protocol_test

import (
	"fmt"
	"time"

	"github.com/unstale/unstale/protocol"
)

// A coupon called * is not every coupon.
func ExampleEscape() {
	glob, err := protocol.CompileGlob(protocol.Escape("coupon:*") + ":*")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(glob.Match("coupon:*:page"), glob.Match("coupon:SUMMER:page"))
	// Output: true false
}

func ExampleLeaseKey() {
	for _, key := range []string{"shop:product:1", "user:{1000}:cart", "odd}key"} {
		lease, ok := protocol.LeaseKey(key)
		fmt.Println(lease, ok)
	}
	// Output:
	// lock:fill:{shop:product:1} true
	// lock:fill:user:{1000}:cart true
	//  false
}

func ExampleMessage_Append() {
	m := protocol.Message{
		Epoch: "f3a1", Seq: 7, At: time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC),
		Keys: []string{"shop:product:1"}, Patterns: []string{"shop:list:*"},
	}
	fmt.Println(string(m.Append(nil, protocol.FormatEvent)))
	fmt.Println(string(m.Append(nil, protocol.FormatArray)))
	// Output:
	// {"v":1,"epoch":"f3a1","seq":7,"at":"2025-03-04T05:06:07.000000Z","keys":["shop:product:1"],"patterns":["shop:list:*"]}
	// ["shop:product:1","shop:list:*"]
}
