<?php

// Changes a price in the shop, and reads it as the same customer: php visit.php URL CENTS. Exit code 1
// if the customer does not see the change.

declare(strict_types=1);

[, $url, $cents] = $argv;
$http = ['method' => 'POST', 'content' => "cents=$cents", 'follow_location' => 0,
    'header' => 'Content-Type: application/x-www-form-urlencoded'];
file_get_contents($url, false, stream_context_create(['http' => $http]));
$cookie = preg_replace('/^Set-Cookie: ([^;]*).*/', '$1', current(preg_grep('/^Set-Cookie: /', $http_response_header)));
$page = file_get_contents($url, false, stream_context_create(['http' => ['header' => "Cookie: $cookie"]]));
echo $page;
exit(json_decode($page, true)['cents'] === (int) $cents ? 0 : 1);
