<?php
// One request of a user with a session: php -d ... session.php ID ACTION [ARGUMENT]. Prints what it
// saw as JSON.

[, $id, $action] = $argv;
$argument = $argv[3] ?? null;

session_id($id);
$started = @session_start();
$seen = match ($action) {
    'read' => $_SESSION,
    'write' => $_SESSION['value'] = json_decode($argument, true),
    'destroy' => session_destroy(),
    'new id' => session_regenerate_id(true) ? session_id() : false,
    'start' => $started,
    'hold' => hold(),
    'count' => count_up((int) $argument),
};
if (session_status() === PHP_SESSION_ACTIVE) {
    @session_write_close();
}
$error = strtok(error_get_last()['message'] ?? '', '.');
echo json_encode($error ?: $seen), "\n";

// Keeps the session, and says so, until its standard input ends.
function hold(): string
{
    echo "held\n";
    fgets(STDIN);
    $_SESSION['value'] = 'of the holder';
    return 'let go';
}

// Many requests one after the other, each of which adds 1.
function count_up(int $times): int
{
    session_write_close();
    for ($i = 0; $i < $times; $i++) {
        session_start();
        $_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
        session_write_close();
    }
    return $times;
}
