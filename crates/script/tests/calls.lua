-- Calls functions of the libraries at random: with extreme numbers, with tables that share and contain each other, and
-- with what other calls returned. ARGV[1] chooses.
local data, at = ARGV[1], 0
local function choose(count)
    at = at + 1
    return (string.byte(data, at) or 0) % count + 1
end

local numbers = {
    0, 1, -1, 2, 3, 7, 16, 255, 4096, 1e5, 2 ^ 31 - 1, 2 ^ 31, -2 ^ 31, -2 ^ 31 - 1, 2 ^ 32, 2 ^ 53, 2 ^ 63, -2 ^ 63,
    1e300, -1e300, 0.5, 1 / 0, -1 / 0, 0 / 0,
}
local shared = { 1, 'x', true }
for _ = 1, 40 do shared = { shared, shared } end
local cyclic = { 1, 2, 3 }
cyclic[4], cyclic.x = cyclic, cyclic
local long = {}
for i = 1, 3000 do long[i] = i * 7919 % 3001 end
local strings = {
    '', 'x', '%', '[', '(', '%1', '%b()', '.-b', '(.-)%1', '%f[%w]', 'c0', '>i16!8dc4s', '>I2147483647', 'on', '10',
    '-0x7fffffff', 'collect', 'count', 'return ...', 'local a = ' .. string.rep('(', 300), '\27Lua',
    '\221\255\255\255\255', '\223\127\255\255\255\1', '[[[[1,{"a":[null,1e999]}]]]]', '"\\ud800', string.rep('a', 1000),
    string.rep('a?', 30) .. string.rep('a', 30), string.rep('ab', 40000),
}
local values = {
    true, false, shared, cyclic, long, { map = shared }, { set = cyclic }, { double = 0 / 0 }, { err = 'x\r\ny' },
    { big_number = '1\n2' }, { verbatim_string = { format = {}, string = 1 } }, setmetatable({}, { __index = cyclic }),
    setmetatable({}, { __mode = 'kv' }), function(...) return ... end, function() error({}) end,
    function(a, b) return a ~= b end, coroutine.create(function(...) while true do coroutine.yield(...) end end),
    cjson.null,
}

local functions = {}
for _, library in ipairs({ string, table, math, cjson, cmsgpack, bit, struct, coroutine, redis, os, _G }) do
    local names = {}
    for name, value in pairs(library) do
        if type(value) == 'function' and type(name) == 'string' then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do functions[#functions + 1] = library[name] end
end

local function value()
    local kind = choose(8)
    if kind <= 3 then return numbers[choose(#numbers)] end
    if kind <= 5 then return strings[choose(#strings)] end
    if kind == 6 then return functions[choose(#functions)] end
    return values[choose(#values)]
end

while at < #data do
    local called, count, arguments = functions[choose(#functions)], choose(5) - 1, {}
    for i = 1, count do arguments[i] = value() end
    local ok, result = pcall(called, unpack(arguments, 1, count))
    if ok and result ~= nil then values[#values % 60 + 1] = result end
end
return values[choose(#values)]
