<?php

// The shop: GET /product/42 shows a price, and POST /product/42 with cents=1999 changes it.
// Run it with: php -S 127.0.0.1:8000 examples/php-shop/public/index.php

declare(strict_types=1);

use Shop\CachedPages;
use Shop\Prices;
use Shop\Servers;

require __DIR__ . '/../autoload.php';

if (preg_match('#^/product/(\d{1,9})$#D', parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '', $found) !== 1) {
    http_response_code(404);
    return;
}
$id = (int) $found[1];
$mysql = Servers::mysql();
$prices = new Prices($mysql);
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $token = $prices->change($id, (int) ($_POST['cents'] ?? 0));
    // Who has changed a price sees it: the next requests come with the token.
    setcookie('written', $token, ['expires' => time() + 300, 'httponly' => true, 'samesite' => 'Lax']);
    http_response_code(303);
    header("Location: /product/$id");
    return;
}
$token = $_COOKIE['written'] ?? ''; // written[]=x makes it an array
$page = (new CachedPages(Servers::cache($mysql), $prices))->page($id, is_string($token) ? $token : '');
if ($page === null) {
    http_response_code(404);
    return;
}
header('Content-Type: application/json');
echo json_encode($page), "\n";
