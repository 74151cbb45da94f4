-- The clock that all leases are judged by.
SELECT faultline.clock() AS now
