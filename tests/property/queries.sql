-- Queries of every construct that a view may have, over the topics of changes.py. Each has a name.
-- count
SELECT page, count(*) AS views FROM clicks GROUP BY page;
-- count-distinct
SELECT page, count(n) AS c, count(DISTINCT user_id) AS d, count(DISTINCT n) AS e FROM clicks GROUP BY page;
-- by-a-list
SELECT [n, user_id] AS k, count(*) AS c, count(DISTINCT page) AS d, max(price) AS m FROM clicks GROUP BY [n, user_id];
-- by-a-struct-of-a-table
SELECT {'a': age, 'c': country} AS k, count(*) AS c, min(user_id) AS lo, count(DISTINCT [age]) AS d FROM users GROUP BY {'a': age, 'c': country};
-- join-by-a-list
SELECT c.id, u.country FROM (SELECT id, [user_id] AS k FROM clicks) c JOIN (SELECT country, [user_id] AS k FROM users) u ON c.k = u.k;
-- distinct-lists
SELECT DISTINCT [age, user_id % 2] AS k FROM users;
-- a-column-named-w
SELECT country AS w, bool_or(age > 30) AS o, list(age ORDER BY age) AS l FROM users GROUP BY country;
-- having
SELECT page, n, count(*) * 2 + 1 AS odd FROM clicks WHERE n > 2 GROUP BY page, n HAVING count(*) > 1;
-- aggregates-of-a-table
SELECT country, count(*) AS c, count(DISTINCT age) AS d, min(age) lo, max(age) hi, sum(age) s, avg(age) a FROM users GROUP BY country;
-- join-then-count
SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
       FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page;
-- self-join
SELECT a.page, count(*) AS pairs FROM clicks a JOIN clicks b ON a.user_id = b.user_id AND a.n < b.n GROUP BY a.page;
-- filter-and-project
SELECT id, upper(page) AS p, n * 2 AS m FROM clicks WHERE n > 1;
-- distinct
SELECT DISTINCT page, n FROM clicks;
-- left-join
SELECT c.id, c.page, u.country FROM clicks c LEFT JOIN users u ON c.user_id = u.user_id;
-- left-join-on-more
SELECT c.id, c.page, u.country FROM clicks c LEFT JOIN users u ON c.user_id = u.user_id AND u.age > c.n * 8 WHERE c.n < 5;
-- right-join
SELECT c.id, u.user_id, u.country FROM clicks c RIGHT JOIN users u ON c.user_id = u.user_id AND c.n = 2;
-- full-join
SELECT c.id, u.user_id AS u, u.country FROM clicks c FULL JOIN users u ON c.user_id = u.user_id AND c.n > 2;
-- semi-join
SELECT u.user_id, u.country FROM users u SEMI JOIN clicks c ON c.user_id = u.user_id AND c.n > 3;
-- anti-join
SELECT u.user_id, u.country FROM users u ANTI JOIN clicks c ON c.user_id = u.user_id AND c.n > 3;
-- total-of-a-stream
SELECT count(*) AS n, sum(n) AS s, max(price) AS m FROM clicks;
-- total-of-a-table
SELECT count(*) AS n, max(age) AS m FROM users WHERE country = 'de';
-- sum-of-floats
SELECT sum(price) AS s, avg(price) a FROM clicks;
-- list-string-median
SELECT page, sum(price) AS s, list(n ORDER BY n) AS l, string_agg(page, ',') t, median(n) md FROM clicks GROUP BY page;
-- arg-max-stddev
SELECT country, arg_max(user_id, age) AS oldest, stddev_pop(age) sd FROM users GROUP BY country;
-- union
SELECT page FROM clicks UNION SELECT country FROM users;
-- union-all
SELECT page FROM clicks UNION ALL SELECT country FROM users;
-- except
SELECT user_id FROM clicks EXCEPT SELECT user_id FROM users;
-- except-all
SELECT user_id FROM clicks EXCEPT ALL SELECT user_id FROM users;
-- intersect
SELECT user_id FROM clicks INTERSECT SELECT user_id FROM users;
-- rollup
SELECT page, user_id, count(*) n, grouping(page) gp FROM clicks GROUP BY ROLLUP (page, user_id);
-- grouping-sets
SELECT page, n, count(*) c FROM clicks GROUP BY GROUPING SETS ((page), (n), ());
-- cube
SELECT page, n, user_id, sum(n) s FROM clicks GROUP BY CUBE (page, n), user_id;
-- row-number-qualify
SELECT id, page, row_number() OVER (PARTITION BY page ORDER BY n DESC) AS rn FROM clicks QUALIFY rn <= 2;
-- row-number-in-a-subquery
SELECT id, page, n FROM (SELECT *, row_number() OVER (PARTITION BY page ORDER BY at DESC, id) AS rn FROM clicks) WHERE rn = 1;
-- rank-and-sum-over
SELECT user_id, country, rank() OVER (PARTITION BY country ORDER BY age) AS r, sum(age) OVER (PARTITION BY country) s FROM users;
-- rows-frame-and-lag
SELECT id, sum(n) OVER (PARTITION BY user_id ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s, lag(page) OVER (PARTITION BY user_id ORDER BY at) l FROM clicks;
-- range-frame
SELECT id, count(*) OVER (PARTITION BY user_id ORDER BY at RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND CURRENT ROW) AS s FROM clicks;
-- top-groups
SELECT page, count(*) AS c FROM clicks GROUP BY page ORDER BY c DESC LIMIT 2;
-- limit-offset
SELECT id, price FROM clicks ORDER BY price DESC, id LIMIT 3 OFFSET 1;
-- limit-by-what-is-not-selected
SELECT page FROM clicks ORDER BY at DESC LIMIT 5;
-- with-used-twice
WITH t AS (SELECT page, count(*) AS c FROM clicks GROUP BY page) SELECT a.page, b.page AS other FROM t a JOIN t b ON a.c = b.c AND a.page < b.page;
-- subquery-in-from
SELECT page, c FROM (SELECT page, count(*) AS c FROM clicks GROUP BY page) WHERE c > 2;
-- count-of-counts
SELECT c, count(*) AS pages FROM (SELECT page, count(*) AS c FROM clicks GROUP BY page) GROUP BY c;
-- in-subquery
SELECT user_id, country FROM users WHERE user_id IN (SELECT user_id FROM clicks WHERE n > 2);
-- not-in-with-nulls
SELECT user_id, country FROM users WHERE user_id NOT IN (SELECT n FROM clicks);
-- not-in
SELECT user_id, country FROM users WHERE age NOT IN (SELECT n * 10 FROM clicks WHERE n IS NOT NULL);
-- exists-with-inequality
SELECT u.user_id FROM users u WHERE EXISTS (SELECT 1 FROM clicks c WHERE c.user_id = u.user_id AND c.n * 10 > u.age);
-- not-exists
SELECT u.user_id FROM users u WHERE NOT EXISTS (SELECT 1 FROM clicks c WHERE c.user_id = u.user_id AND c.page = '/a');
-- scalar-subquery
SELECT id, n FROM clicks WHERE n > (SELECT avg(n) FROM clicks);
-- correlated-scalar-subqueries
SELECT u.user_id, (SELECT max(n) FROM clicks c WHERE c.user_id = u.user_id) AS best, (SELECT count(*) FROM clicks c WHERE c.user_id = u.user_id AND n > 1) AS times FROM users u;
-- join-without-equality
SELECT u.user_id, c.id FROM users u JOIN clicks c ON c.n * 10 > u.age;
-- left-join-without-equality
SELECT u.user_id, c.id FROM users u LEFT JOIN clicks c ON c.n * 10 > u.age;
-- cross-join
SELECT u.user_id, r.rate FROM users u CROSS JOIN rates r;
-- three-way-join
SELECT c.id, u.country, r.rate FROM clicks c JOIN users u ON c.user_id = u.user_id JOIN rates r ON r.country = u.country;
-- comma-join
SELECT c.id, u.country, r.rate FROM clicks c, rates r, users u WHERE c.user_id = u.user_id AND r.country = u.country AND r.rate > c.n;
-- left-joins
SELECT c.id, u.country, r.rate FROM clicks c LEFT JOIN users u ON c.user_id = u.user_id LEFT JOIN rates r ON r.country = u.country;
-- join-using-group-by-all
SELECT u.country, r.rate, count(*) AS n, sum(c.n) s FROM clicks c JOIN users u USING (user_id) JOIN rates r USING (country) GROUP BY ALL;
-- tumble
SELECT page, window_start, count(*) AS c FROM TUMBLE(clicks, at, INTERVAL '1 minute') GROUP BY page, window_start;
-- tumble-in-group-by
SELECT page, tumble(at, '1 minute') AS w, count(*) AS c FROM clicks GROUP BY page, tumble(at, '1 minute');
-- hop
SELECT page, window_start, window_end, count(*) AS c FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY ALL;
-- hop-not-a-multiple
SELECT page, window_start, window_end, count(*) AS c FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '50 seconds') GROUP BY ALL;
-- hop-in-group-by
SELECT page, hop_start(at, INTERVAL '20 seconds', INTERVAL '1 minute') AS opens, hop_end(at, INTERVAL '20 seconds', INTERVAL '1 minute') AS closes, sum(n) AS s, avg(n) AS a FROM clicks GROUP BY page, hop_start(at, INTERVAL '20 seconds', INTERVAL '1 minute'), hop_end(at, INTERVAL '20 seconds', INTERVAL '1 minute');
-- hop-of-a-table
SELECT country, window_start, count(*) AS c, sum(rate) AS s, avg(rate) AS a, min(rate) AS lo, max(rate) AS hi, count(DISTINCT rate) AS d FROM HOP(rates, at, INTERVAL '15 seconds', INTERVAL '1 minute') WHERE rate > 1 GROUP BY country, window_start HAVING count(*) > 0;
-- hop-distinct-and-extremes
SELECT page, window_end, count(DISTINCT user_id) AS d, count(DISTINCT n) FILTER (WHERE n > 1) AS e, min(price) AS lo, max(n) FILTER (WHERE user_id > 2) AS hi, max(at) AS last, min(page) AS p FROM HOP(clicks, at, INTERVAL '10 seconds', INTERVAL '40 seconds') GROUP BY ALL;
-- hop-around-the-epoch
SELECT page, window_start, window_end, count(*) AS c, max(at) AS last FROM HOP((SELECT page, CASE WHEN n <> 3 THEN at - INTERVAL '20454 days 150 seconds' END AS at FROM clicks), at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY ALL;
-- hop-with-its-records
SELECT page, window_start, count(*) AS c, count(*) FILTER (WHERE at < window_start + INTERVAL '20 seconds') AS early, max(epoch_us(window_end) - epoch_us(at)) AS before_end FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute') WHERE at > window_start + INTERVAL '3 seconds' GROUP BY page, window_start;
-- hop-without-its-windows
SELECT page, date_trunc('minute', window_start) AS m, count(*) AS c, sum(n) AS s, max(n) AS hi FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY page, date_trunc('minute', window_start) UNION ALL SELECT page, NULL, count(*), sum(n), max(n) FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY page;
-- hop-by-what-is-computed-of-its-windows
SELECT page, opens, epoch_us(window_end) - early AS span, count(*) AS c FROM (SELECT page, window_end, date_trunc('minute', window_start) AS opens, epoch_us(window_start) - 1000000 AS early FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute')) GROUP BY page, opens, epoch_us(window_end) - early;
-- hop-of-a-join
SELECT country, window_start, count(*) AS c, sum(n) AS s, max(n) AS hi FROM HOP((SELECT u.country, c.n, c.at FROM clicks c JOIN users u ON c.user_id = u.user_id), at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY country, window_start;
-- hop-in-grouping-sets
SELECT page, window_start, count(*) AS c, sum(n) AS s FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute') GROUP BY ROLLUP (window_start, page);
-- hop-of-distinct
SELECT DISTINCT page, window_start FROM HOP(clicks, at, INTERVAL '20 seconds', INTERVAL '1 minute');
-- session
SELECT user_id, window_start, window_end, count(*) AS c FROM SESSION(clicks, at, user_id, INTERVAL '20 seconds') GROUP BY ALL;
-- session-in-group-by
SELECT user_id, session(at, '20 seconds') AS s, max(n) AS m FROM clicks GROUP BY user_id, session(at, '20 seconds');
-- session-numbers
SELECT user_id, page, window_end, count(*) AS c, sum(n) AS s, avg(n) AS a, min(at) AS f, max(page) AS p, count(*) FILTER (n > 2) AS big FROM SESSION(clicks, at, user_id, page, INTERVAL '20 seconds') GROUP BY user_id, page, window_end HAVING count(*) > 1;
-- session-of-distinct
SELECT user_id, window_start, count(DISTINCT page) AS d FROM SESSION(clicks, at, user_id, INTERVAL '20 seconds') GROUP BY ALL;
-- first-of-joined
SELECT a.page, a.id AS one, b.id AS other, b.n, b.page AS its FROM clicks a JOIN clicks b ON a.user_id = b.user_id AND b.n > a.n QUALIFY row_number() OVER (PARTITION BY a.page ORDER BY b.n DESC, b.at, b.page, a.id) = 1;
-- calendar
SELECT strftime(at, '%Y-%m-%d') AS day, hour(at) AS h, count(*) AS c, max(strftime(at, '%H:%M')) AS last, min(minute(at)) AS m FROM clicks GROUP BY strftime(at, '%Y-%m-%d'), hour(at);
-- calendar-by-text
SELECT strftime(at, '%H:%M') AS m, page, count(*) AS c, count(DISTINCT user_id) AS d, count(DISTINCT n) FILTER (WHERE n > 1) AS e, sum(n) AS s, min(price) AS lo, max(page) AS p FROM clicks GROUP BY strftime(at, '%H:%M'), page;
-- calendar-by-text-of-a-table
SELECT strftime(at, '%Y-%m-%d %H') AS h, country, count(*) AS c, avg(rate) AS a, min(rate) AS lo, max(rate) AS hi, count(DISTINCT rate) AS d FROM rates GROUP BY strftime(at, '%Y-%m-%d %H'), country HAVING count(*) > 0;
-- calendar-by-text-at-the-ends-of-time
SELECT strftime(at, '%Y-%m-%d') AS day, strftime(at, '%-M') AS m, count(*) AS c, count(DISTINCT page) AS d FROM (SELECT page, CASE n WHEN 0 THEN NULL WHEN 1 THEN 'infinity'::TIMESTAMPTZ WHEN 2 THEN '-infinity'::TIMESTAMPTZ WHEN 3 THEN at - INTERVAL '800000 days' WHEN 4 THEN at - INTERVAL '20500 days' ELSE at END AS at FROM clicks) GROUP BY ALL;
-- calendar-by-text-that-is-asked-for
SELECT strftime(at, '%H:%M') AS m, max(strftime(at, '%H:%M') || page) AS p, count(DISTINCT strftime(at, '%H:%M')) AS d FROM clicks WHERE strftime(at, '%M') > '01' GROUP BY strftime(at, '%H:%M');
-- calendar-by-text-under-two-names
SELECT d, e, max(f) AS f, count(*) AS n FROM (SELECT d, d AS e, left(d, 7) AS f FROM (SELECT strftime(at, '%Y-%m-%d') AS d FROM rates)) GROUP BY d, e;
-- calendar-by-text-through-names
WITH x AS (SELECT strftime(at, '%Y-%m-%d %H') AS d, country FROM rates), y AS (SELECT d AS day, left(d, 7) AS month, country FROM x) SELECT day, month, count(*) AS n, count(DISTINCT country) AS c FROM y GROUP BY ALL;
-- calendar-with-zone
SELECT id, strftime(at, '%H:%M %z') AS z, month(at) AS m, day(at) AS d, strftime(NULL::TIMESTAMPTZ, '%d') AS nothing FROM clicks;
-- asof-join
SELECT c.id, r.rate FROM clicks c JOIN users u ON c.user_id = u.user_id ASOF JOIN rates r ON u.country = r.country AND c.at >= r.at;
-- asof-left-join
SELECT c.id, r.rate FROM clicks c ASOF LEFT JOIN rates r ON c.at >= r.at;
-- case-regexp-json
SELECT id, CASE WHEN n > 2 THEN 'big' WHEN n IS NULL THEN '?' ELSE 'small' END AS size, regexp_extract(page, '/(.)', 1) AS p, '{"a": 1}'::JSON ->> '$.a' AS j FROM clicks;
-- filters-of-aggregates
SELECT page, max(n) FILTER (WHERE n < 4) AS m, count(*) FILTER (WHERE n > 1) AS c, count(DISTINCT user_id) FILTER (WHERE n > 1) AS d FROM clicks GROUP BY page;
-- distinct-on
SELECT DISTINCT ON (page) page, at, id FROM clicks ORDER BY page, at DESC;
-- having-with-a-subquery
SELECT country, max(age) AS m FROM users WHERE age > 20 GROUP BY country HAVING max(age) > (SELECT min(age) FROM users);
-- unnest
SELECT id, unnest([n, n + 1]) AS m FROM clicks;
-- sum-of-counts-over
SELECT page, sum(count(*)) OVER () AS total, count(*) AS c FROM clicks GROUP BY page;
-- correlated-maximum
SELECT a.user_id FROM users a WHERE a.age >= (SELECT max(age) FROM users b WHERE b.country = a.country);
-- count-distinct-of-all
SELECT count(DISTINCT page) AS d FROM clicks;
-- ntile
SELECT ntile(2) OVER (ORDER BY age) AS t, user_id FROM users;
-- union-of-a-group-and-a-table
SELECT country, age, count(*) AS n FROM users GROUP BY country, age HAVING count(*) > 0 UNION ALL SELECT country, rate::INTEGER, 1 FROM rates;
-- bool-and-any-value-mode
SELECT bool_and(n > 1) AS b, any_value(page) AS p, mode(n) AS m FROM clicks GROUP BY user_id;
-- min-and-max-of-text-and-time
SELECT min(page) AS lo, max(at) AS hi, user_id FROM clicks GROUP BY user_id;
-- first-and-list
SELECT user_id, arg_max(page, n) AS p, first(page) f, list(page) l FROM clicks GROUP BY user_id;
-- group-over-left-join
SELECT o.country, sum(c.n) AS s FROM (SELECT country, user_id FROM users WHERE age > 20) o LEFT JOIN clicks c ON c.user_id = o.user_id GROUP BY o.country;
-- hottest-in-window
SELECT w.page, w.window_start, w.c FROM (SELECT page, window_start, count(*) AS c FROM TUMBLE(clicks, at, INTERVAL '1 minute') GROUP BY page, window_start) w JOIN (SELECT window_start, max(c) AS m FROM (SELECT page, window_start, count(*) AS c FROM TUMBLE(clicks, at, INTERVAL '1 minute') GROUP BY page, window_start) GROUP BY window_start) m ON w.window_start = m.window_start AND w.c = m.m;
-- average-of-maxima
SELECT page, avg(m) AS a FROM (SELECT page, user_id, max(n) AS m FROM clicks GROUP BY page, user_id) GROUP BY page;
-- moving-average
SELECT user_id, page, n, avg(n) OVER (PARTITION BY user_id ORDER BY at, id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS a FROM clicks WHERE n IS NOT NULL;
-- top-two-of-a-join
WITH best AS (SELECT c.user_id, c.n, u.country, row_number() OVER (PARTITION BY u.country ORDER BY c.n DESC, c.id) rn FROM clicks c JOIN users u ON c.user_id = u.user_id) SELECT country, user_id, n FROM best WHERE rn <= 2;
-- maximum-of-window-counts
SELECT window_start, max(c) AS m FROM (SELECT page, window_start, count(*) AS c FROM TUMBLE(clicks, at, INTERVAL '1 minute') GROUP BY page, window_start) GROUP BY window_start;
-- count-of-groups
SELECT count(*) AS n FROM (SELECT page, count(*) AS c FROM clicks GROUP BY page);
-- extremes-of-counts
SELECT max(c) AS n, min(c) lo FROM (SELECT page, count(*) AS c FROM clicks GROUP BY page);
-- all-of-a-constant
SELECT u.country, count(*) AS c FROM users u GROUP BY u.country HAVING count(*) >= ALL (SELECT 1);
-- group-over-full-join
SELECT u.country, c.page, count(*) n FROM users u FULL JOIN clicks c USING (user_id) GROUP BY u.country, c.page;
-- rate-of-its-time
SELECT c.id, r.rate FROM clicks c JOIN users u ON c.user_id = u.user_id JOIN rates FOR SYSTEM_TIME AS OF c.at AS r ON r.country = u.country;
-- rate-of-its-time-or-none
SELECT c.id, c.n, r.rate FROM clicks c LEFT JOIN rates FOR SYSTEM_TIME AS OF c.at AS r ON r.country = CASE WHEN c.n > 2 THEN 'de' ELSE 'fr' END;
-- in-under-or
SELECT id, page FROM clicks WHERE n = 1 OR user_id IN (SELECT user_id FROM users WHERE age > 20);
-- not-in-under-or
SELECT id, page FROM clicks WHERE n = 1 OR n NOT IN (SELECT age / 10 FROM users);
-- correlated-not-in
SELECT id, page FROM clicks c WHERE n NOT IN (SELECT age / 10 FROM users u WHERE u.user_id = c.user_id);
-- exists-under-or
SELECT u.user_id FROM users u WHERE u.age = 20 OR NOT EXISTS (SELECT 1 FROM clicks c WHERE c.user_id = u.user_id AND c.n > 2);
-- exists-of-anything-under-or
SELECT user_id FROM users WHERE age = 20 OR EXISTS (SELECT 1 FROM rates WHERE rate > 2);
-- in-over-several-columns
SELECT id, page FROM clicks WHERE (user_id, n) IN (SELECT user_id, age / 10 FROM users);
-- in-over-several-columns-under-or
SELECT id, page FROM clicks WHERE page = '/a' OR (user_id, n) IN (SELECT user_id, age // 10 FROM users);
-- subquery-in-on
SELECT c.id, u.country FROM clicks c JOIN users u ON c.user_id = u.user_id AND u.country IN (SELECT country FROM rates);
-- subquery-in-on-of-a-left-join
SELECT c.id, u.country FROM clicks c LEFT JOIN users u ON c.user_id = u.user_id AND u.country IN (SELECT country FROM rates);
-- exists-of-a-total
SELECT user_id FROM users WHERE EXISTS (SELECT max(rate) FROM rates WHERE rate > 9);
-- in-distinct-limit
SELECT id, n FROM clicks WHERE n IN (SELECT DISTINCT n FROM clicks ORDER BY n LIMIT 2);
-- correlated-count-of-nothing
SELECT u.user_id, (SELECT count(*) + 1 FROM clicks c WHERE c.user_id = u.user_id) AS m, (SELECT coalesce(max(n), -1) FROM clicks c WHERE c.user_id = u.user_id AND c.n > 3) AS b FROM users u;
-- total-joined-before-its-first-record
SELECT c.id, t.k FROM clicks c CROSS JOIN (SELECT count(*) AS k FROM users WHERE age > 100) t;
-- rollup-of-nothing
SELECT country, max(age) AS m FROM users WHERE age > 100 GROUP BY ROLLUP (country);
-- condition-of-rows-that-a-later-join-adds
SELECT a.id, c.id AS other FROM rates r JOIN clicks a ON r.rate = a.n FULL JOIN clicks c ON a.n = c.user_id WHERE c.id IS NOT NULL AND NOT (a.page = r.country);
-- count-of-the-first-rows
SELECT user_id FROM users WHERE user_id < (SELECT count(*) FROM (SELECT id FROM clicks ORDER BY id LIMIT 4) t)
